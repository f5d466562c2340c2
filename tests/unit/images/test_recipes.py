"""Each recipe's own steps on a machine where nothing was ever downloaded.

Go's module cache is empty and elsewhere, and `go` answers questions about modules for real; only what takes minutes
is stood in for: compiling, Debian's packages and Docker. A recipe that relies on what an earlier run left in a cache
fails.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from .conftest import IMAGES, Bench

RECIPES = sorted(path.stem for path in (IMAGES / "closed-network/recipes").glob("*.sh"))
GO = shutil.which("go")

COMPILE = """
case $1 in
  list) [[ " $* " == *" -deps "* ]] && { echo runtime; exit; } ;;
  build)
    while [[ $1 != -o ]]; do shift; done
    out=$2
    shift 2
    for package; do
      name=${package%/v[0-9]}
      printf '#!/bin/sh\\nprintf "%%s\\\\n" IMAGES\\n' > "$out/${name##*/}"
      chmod 755 "$out/${name##*/}"
    done
    exit ;;
esac
exec REAL_GO "$@"
"""

# What `kubeadm config images list` prints; every other program prints it too, and nobody reads that.
KUBERNETES_IMAGES = ("etcd:3.6.8-0", "coredns/coredns:v1.14.2", "pause:3.10.2", "kube-proxy:v1.36.4")

# debootstrap makes a root, apt puts files into it, and programs say their version.
DEBIAN = """
case "$*" in
  *debootstrap*)
    root=${@: -2:1}
    mkdir -p "$root"/usr/{lib/cni,lib/python3.11,bin,sbin,share/keyrings} "$root"/usr/local/{bin,sbin} \\
      "$root"/etc/{default,sysctl.d,apt/apt.conf.d,apt/sources.list.d} "$root"/var/{lib/apt/lists,cache/apt,log} \\
      "$root"/{dev,proc,tmp} ;;
  *"apt-get "*" install"*)
    root=$7
    touch "$root"/usr/lib/cni/{host-local,ptp,portmap,loopback} ;;
  *"haproxy -v"*) echo "HAProxy version HAPROXY_VERSION 2026/01/01" ;;
  *"llama-server --version"*) echo "version: 0.5.0 (Debian)" ;;
  *"python3 --version"*) echo "Python 3.11.99" ;;
esac
"""

# pip downloads wheels, and unpacks them.
PYTHON = """
case "$*" in
  *"pip download"*) while [[ $1 != --dest ]]; do shift; done; mkdir -p "$2"; touch "$2/tool.whl"; exit ;;
  *"pip install"*) while [[ $1 != --target ]]; do shift; done; mkdir -p "$2/bin"; exit ;;
esac
exec REAL_PYTHON "$@"
"""

DOCKER = """
case $1 in
  import) cat > /dev/null; echo sha256:made ;;
  image) [[ $2 == inspect ]] && exit 1 ;;
  save) while [[ $1 != --output ]]; do shift; done; echo archive > "$2" ;;
esac
exit 0
"""


@pytest.fixture
def machine(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A fresh machine: nothing in any cache, and no compiler that takes minutes."""
    version = subprocess.run(
        ["bash", "-c", f'source "{IMAGES}/versions.env"; echo "${{HAPROXY_IMAGE#*:}}"'],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    for program in ("id", "dpkg-query"):
        bench.stand_in(program, "echo 0")
    bench.stand_in("debootstrap", "")
    bench.stand_in("unshare", DEBIAN.replace("HAPROXY_VERSION", version if version.count(".") > 1 else f"{version}.7"))
    bench.stand_in("docker", DOCKER)
    bench.stand_in("python3", PYTHON.replace("REAL_PYTHON", sys.executable))
    names = " ".join(f"registry.k8s.io/{name}" for name in KUBERNETES_IMAGES)
    bench.stand_in("go", COMPILE.replace("REAL_GO", str(GO)).replace("IMAGES", names))
    modules = bench.folder / "modules"
    monkeypatch.setenv("GOMODCACHE", str(modules))
    monkeypatch.setenv("GOFLAGS", "-modcacherw")
    return bench


@pytest.mark.skipif(GO is None, reason="the recipes that compile need Go, as the machine that runs them does")
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_needs_nothing_of_an_earlier_run(machine: Bench, recipe: str) -> None:
    script = IMAGES / f"closed-network/recipes/{recipe}.sh"
    image = machine.script(f'source "{script}"; say "$image"').stdout.strip()

    ended = machine.run(str(IMAGES / "closed-network/build.sh"), image)

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1].startswith(f"{image}: built in ")
    assert [path.name for path in (machine.cache / "images" / recipe).iterdir()], "the image is kept in the cache"


@pytest.mark.parametrize(
    ("requested", "other"),
    [("etcd:3.6.8-0", "etcd:3.6.9-0"), ("etcd:3.6.8-0", "etcd:3.6-0"), ("coredns:v1.14.2", "coredns:v1.14.3")],
)
def test_a_kubeadm_that_requests_other_versions_than_the_locked_ones_ends_the_build(
    machine: Bench, requested: str, other: str
) -> None:
    machine.stand_in("go", (machine.folder / "bin/go").read_text().replace(requested, other))

    ended = machine.run(str(IMAGES / "closed-network/build.sh"), "kindest/node:v1.36.4")

    assert ended.returncode == 1
    assert f"requests registry.k8s.io/{'coredns/' if 'coredns' in other else ''}{other}, but" in ended.stderr
    assert not [call for call in machine.calls if call.startswith("docker import")]


def test_kinds_own_files_are_looked_for_before_anything_is_compiled(machine: Bench) -> None:
    """0.4.0 found that they were missing after it had compiled for most of an hour."""
    machine.stand_in("go", 'if [[ "$*" == *"list"*"-m"* ]]; then exit 0; fi; echo compiled >&2')

    ended = machine.run(str(IMAGES / "closed-network/build.sh"), "kindest/node:v1.36.4")

    assert ended.returncode == 1
    assert "kind's Go module does not contain the files of its node image" in ended.stderr
    assert not [call for call in machine.calls if call.startswith("go build")]
