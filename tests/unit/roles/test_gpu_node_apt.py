"""The role gpu_node's way with apt: the real one, on empty packages of the right names, in a system in a folder."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from .test_gpu_node_run import Machine

PYTHON = "/usr/bin/python3"
KERNEL = "6.8.0-87-generic"
NEXT = "6.8.0-88-generic"
# Versions of the driver, by the repository that offers them.
UBUNTU = ("570.133.20-0ubuntu1", "580.65.06-0ubuntu1", "580.95.05-0ubuntu1")
NVIDIA = ("580.65.06-1ubuntu1", "580.105.08-1ubuntu1")
UNNUMBERED = ("580.105.08-1ubuntu1", "595.91.07-1ubuntu1", "600.1-1ubuntu1")


def has_apt() -> bool:
    if not all(shutil.which(tool) for tool in ("apt-get", "dpkg-deb", "dpkg-scanpackages", PYTHON)):
        return False
    return subprocess.run([PYTHON, "-c", "import apt"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not has_apt(), reason="needs apt, dpkg-dev and python3-apt")


class System:
    """Ubuntu in a folder, whose archive and whose CUDA repository have drivers of several branches."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.machine = Machine(folder).has_gpu()
        self.root = folder / "system"
        for name in ("dpkg/info", "dpkg/updates", "dpkg/triggers", "apt/lists/partial", "log/apt", "etc/preferences.d"):
            (self.root / name).mkdir(parents=True)
        for name in ("dpkg/status", "dpkg/available"):
            (self.root / name).touch()
        (self.root / "cache/archives/partial").mkdir(parents=True)
        self._fill()
        places = [self._index("ubuntu", "Ubuntu"), self._index("nvidia", "NVIDIA")]
        (self.root / "etc/sources.list").write_text("".join(f"deb [trusted=yes] file:{at} ./\n" for at in places))
        (self.root / "apt.conf").write_text(self._settings())
        self.does("apt-get", "update")

    def does(self, *command: str) -> str:
        done = subprocess.run(command, env=os.environ | self.environment(), capture_output=True, text=True, check=True)
        return done.stdout

    def environment(self) -> dict[str, str]:
        return {"APT_CONFIG": str(self.root / "apt.conf"), "DPKG_ADMINDIR": str(self.root / "dpkg")}

    def gets(self, entry: str = "packages", **variables: str) -> str:
        """What a play of these tasks says of itself: how many changed something."""
        extra = {
            "__gpu_node_preferences_path": str(self.root / "etc/preferences.d/slipway-gpu-driver"),
            "__gpu_node_kernel": KERNEL,
            **variables,
        }
        self.machine.tool("dpkg-query", f'exec {shutil.which("dpkg-query")} --admindir={self.root}/dpkg "$@"')
        output = self.machine.plays_tasks(["find", entry], extra, PYTHON, self.environment())
        match = re.search(r"changed=(\d+)", output)
        assert match, output
        return match[1]

    def installed(self) -> dict[str, str]:
        """Name -> version of what is installed, with a star where it is held."""
        text = self.does(
            "dpkg-query",
            f"--admindir={self.root}/dpkg",
            "--show",
            r"--showformat=${db:Status-Abbrev} ${Package} ${Version}\n",
        )
        rows = [line.split() for line in text.splitlines()]
        return {
            name: version + ("*" if state.startswith("h") else "") for state, name, version in rows if state[1] == "i"
        }

    def _settings(self) -> str:
        return (
            f'Dir "{self.root}"; Dir::Etc "etc"; Dir::State "apt"; Dir::State::status "{self.root}/dpkg/status";\n'
            f'Dir::Cache "cache"; Dir::Log "log/apt"; Dir::Bin::dpkg "{shutil.which("dpkg")}";\n'
            f'DPkg::Options {{ "--root={self.root}/files"; "--admindir={self.root}/dpkg"; "--log=/dev/null"; }};\n'
            'APT::Architecture "amd64"; APT::Sandbox::User "root"; DPkg::Run-Directory "/";\n'
        )

    def _fill(self) -> None:
        (self.root / "files").mkdir()
        for version in UBUNTU:
            branch = version[:3]
            library = f"libnvidia-compute-{branch}-server"
            self._has("ubuntu", library, version, rival=True)
            for name in (f"nvidia-headless-no-dkms-{branch}-server-open", f"nvidia-utils-{branch}-server"):
                self._has("ubuntu", name, version, f"{library} (= {version})")
            modules = f"linux-modules-nvidia-{branch}-server-open"
            self._has("ubuntu", f"{modules}-{NEXT}", "6.8.0-88.1")
            self._has("ubuntu", f"{modules}-generic", "6.8.0-88.1", f"{modules}-{NEXT}")
        self._has("ubuntu", f"linux-modules-nvidia-580-server-open-{KERNEL}", "6.8.0-87.1")
        for name in (f"linux-headers-{KERNEL}", "linux-headers-generic", "linux-image-generic"):
            self._has("ubuntu", name, "6.8.0")
        for version in NVIDIA:
            self._has("nvidia", "libnvidia-compute-580", version, rival=True)
            for name in ("nvidia-headless-580-open", "nvidia-utils-580"):
                self._has("nvidia", name, version, f"libnvidia-compute-580 (= {version})")
        for version in UNNUMBERED:
            self._has("nvidia", "libnvidia-compute", version, rival=True)
            self._has("nvidia", "nvidia-dkms-open", version, f"libnvidia-compute (= {version})")
            self._has("nvidia", "nvidia-persistenced", version)
        # A part of the one driver, in a newer release, where the other one is.
        self._has("nvidia", "nvidia-utils-580-server", "580.200.01-1ubuntu1")

    def _has(self, repository: str, name: str, version: str, depends: str = "", rival: bool = False) -> None:
        folder = self.folder / "built" / f"{name}_{version}"
        (folder / "DEBIAN").mkdir(parents=True, exist_ok=True)
        fields = {
            "Package": name, "Version": version, "Architecture": "all", "Maintainer": "acme <acme@example.com>",
            "Depends": depends, "Provides": "a-driver" if rival else "", "Conflicts": "a-driver" if rival else "",
            "Description": "empty",
        }  # fmt: skip
        (folder / "DEBIAN/control").write_text("".join(f"{key}: {value}\n" for key, value in fields.items() if value))
        target = self.folder / repository / f"{name}_{version}_all.deb"
        target.parent.mkdir(exist_ok=True)
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Znone", "-b", folder, target], capture_output=True, check=True
        )

    def _index(self, repository: str, origin: str) -> Path:
        folder = self.folder / repository
        command = ["dpkg-scanpackages", "--multiversion", "."]
        packages = subprocess.run(command, cwd=folder, capture_output=True, check=True).stdout
        (folder / "Packages").write_bytes(packages)
        digest = f"{hashlib.sha256(packages).hexdigest()} {len(packages)} Packages"
        (folder / "Release").write_text(f"Origin: {origin}\nLabel: {origin}\nSHA256:\n {digest}\n")
        return folder


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(tmp_path)


def test_a_driver_comes_from_one_repository_and_stays(system: System) -> None:
    system.gets()

    assert system.installed() == {
        "libnvidia-compute-580-server": "580.95.05-0ubuntu1",
        "linux-modules-nvidia-580-server-open-6.8.0-87-generic": "6.8.0-87.1*",
        "nvidia-headless-no-dkms-580-server-open": "580.95.05-0ubuntu1*",
        "nvidia-utils-580-server": "580.95.05-0ubuntu1*",
    }
    assert system.gets() == "0"


def repository(uri: str) -> dict[str, object]:
    return {"name": "toolkit", "key": "", "deb": {"uris": [uri], "suites": ["./"]}, "rpm": {"baseurl": ""}}


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("", True),
        ("# deb {uri} ./", True),
        ("deb {uri}/other ./", True),
        ("deb [signed-by=/usr/share/keyrings/theirs.gpg] {uri} ./", False),
        ("deb [signed-by=/usr/share/keyrings/theirs.gpg] {arch}/ ./", False),
        ("URIs: {uri}", False),
    ],
)
def test_an_address_of_a_foreign_installation_stays_unchanged(tmp_path: Path, line: str, written: bool) -> None:
    """apt reads no list at all where two files name one address and different keys."""
    folder = tmp_path / "sources"
    folder.mkdir()
    uri = "https://mirror.example.com/stable/deb/amd64"
    (folder / "theirs.list").write_text(line.format(uri=uri, arch=uri.replace("amd64", "$(ARCH)")) + "\n")
    ours = folder / "toolkit.sources"
    ours.write_text("of an earlier release\n")
    extra = {"__gpu_node_deb_places": [str(folder)], "__gpu_node_deb_source": str(ours)}
    play = {"__gpu_node_repository": repository(uri)}
    Machine(tmp_path).plays_tasks(["repository"], extra | play, PYTHON, {}, "--check")

    assert ours.exists()  # check mode has changed nothing
    output = (tmp_path / "said").read_text()
    _before, task, after = output.partition("TASK [slipway.inference.gpu_node : Use the existing entry, toolkit]")
    assert task
    assert ("changed: [localhost]" in after.partition("TASK")[0]) is not written


def test_a_repository_that_cannot_be_read_is_taken_back(system: System) -> None:
    parts = system.root / "etc/sources.list.d"
    parts.mkdir()
    ours = parts / "toolkit.sources"
    extra = {
        "__gpu_node_deb_places": [str(parts)],
        "__gpu_node_deb_source": str(ours),
        "__gpu_node_repository": repository(f"file:{system.folder}/nothing"),
    }
    output = system.machine.plays_tasks(["repository"], extra, PYTHON, system.environment(), failing=True)

    assert "the repository toolkit cannot be read and was removed" in output
    assert not ours.exists()
    system.does("apt-get", "update")


def test_a_driver_that_is_held_gives_way_to_an_older_one_and_to_that_of_another_repository(system: System) -> None:
    system.gets()
    system.gets(gpu_node_nvidia_version="580.65.06")
    assert set(system.installed().values()) == {"580.65.06-0ubuntu1", "580.65.06-0ubuntu1*", "6.8.0-87.1*"}

    system.gets(gpu_node_nvidia_repository="cuda", gpu_node_nvidia_branch="595")
    assert system.installed().items() >= {"libnvidia-compute": "595.91.07-1ubuntu1*"}.items()
    assert "nvidia-headless-no-dkms-580-server-open" not in system.installed()


def test_a_kernel_that_the_archive_has_left_behind_gets_its_driver_with_the_next_one(system: System) -> None:
    system.does("apt-get", "-y", "install", "linux-image-generic")
    system.gets(__gpu_node_kernel="6.8.0-50-generic")

    installed = system.installed()
    assert f"linux-modules-nvidia-580-server-open-{NEXT}" in installed
    assert installed["linux-image-generic"].endswith("*")

    system.gets("remove_apt", __gpu_node_kernel="6.8.0-50-generic")
    assert system.installed() == {"linux-image-generic": "6.8.0"}
