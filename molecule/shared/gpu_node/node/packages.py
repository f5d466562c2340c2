"""Makes packages that have nothing but their names and what the tests look at, and repositories of them.

usage: packages.py FILE    a JSON list of packages: repository (a directory), name, version, and brings
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

UNIT = "[Unit]\nDescription={0}\n[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
REFRESH = (
    "[Unit]\nAfter=machine-boot.service\n[Service]\nType=oneshot\n"
    "ExecStart=/usr/bin/nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml\n"
    "[Install]\nWantedBy=multi-user.target\n"
)
WATCH = "[Path]\nPathChanged=/usr/share/machine\n[Install]\nWantedBy=multi-user.target\n"
CONFIG = """#accept-nvidia-visible-devices-as-volume-mounts = false

[nvidia-container-runtime]
log-level = "info"
mode = "legacy"
"""
# What a package brings -> path -> text, or the program that is called by this name.
CONTENTS = {
    "open": {"/usr/share/machine/nvidia": "{upstream} open\n"},
    "proprietary": {"/usr/share/machine/nvidia": "{upstream} proprietary\n"},
    "smi": {"/usr/bin/nvidia-smi": "->/usr/local/sbin/machine"},
    "persistenced": {
        "/usr/bin/nvidia-persistenced": "#!/bin/sh\nexec sleep infinity\n",
        "/usr/lib/systemd/system/nvidia-persistenced.service": UNIT.format("nvidia-persistenced"),
    },
    "ctk": {
        "/usr/bin/nvidia-ctk": "->/usr/local/sbin/machine",
        "/usr/bin/nvidia-container-runtime": '#!/bin/sh\nexec runc "$@"\n',
        "/etc/nvidia-container-runtime/config.toml": CONFIG,
    },
    "refresh": {
        "/usr/lib/systemd/system/nvidia-cdi-refresh.service": REFRESH,
        "/usr/lib/systemd/system/nvidia-cdi-refresh.path": WATCH,
    },
}


def fill(root, package):
    """Returns the paths that were written."""
    upstream = package["version"].rpartition("-")[0].rpartition(":")[2]
    written = []
    for part in package.get("brings", []):
        for path, text in CONTENTS[part].items():
            file = root / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            if text.startswith("->"):
                file.symlink_to(text[2:])
            else:
                file.write_text(text.replace("{upstream}", upstream))
                file.chmod(0o755 if text.startswith("#!") else 0o644)
            written.append(path)
    return written


def make_deb(package, folder):
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        written = fill(root, package)
        (root / "DEBIAN").mkdir()
        control = f"Package: {package['name']}\nVersion: {package['version']}\nArchitecture: all\n"
        control += "Maintainer: nobody <nobody@example.com>\nDescription: only a name\n"
        (root / "DEBIAN/control").write_text(control)
        configured = [path for path in written if path.startswith("/etc/")]
        (root / "DEBIAN/conffiles").write_text("".join(f"{path}\n" for path in configured))
        file = folder / f"{package['name']}_{package['version']}_all.deb"
        subprocess.run(["dpkg-deb", "--build", "--root-owner-group", name, file], check=True, stdout=subprocess.DEVNULL)
    data = file.read_bytes()
    return f"{control}Filename: ./{file.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"


def make_rpm(package, folder):
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "files"
        root.mkdir()
        written = fill(root, package)
        version, _dash, release = package["version"].rpartition("-")
        architecture = package.get("architecture", "noarch")
        spec = f"Name: {package['name']}\nVersion: {version}\nRelease: {release}\nSummary: only a name\nLicense: none\n"
        # A system that is none has nothing that provides a shell.
        spec += "AutoReqProv: no\n"
        spec += f"{'BuildArch: noarch' if architecture == 'noarch' else ''}\n%description\nonly a name\n"
        spec += f"%install\nmkdir -p %{{buildroot}}\ncp -a {root}/. %{{buildroot}}/\n"
        spec += "\n".join(["%files", *written, ""])
        (Path(name) / "package.spec").write_text(spec)
        command = ["rpmbuild", "-bb", "--define", f"_rpmdir {folder}", "--define", f"_topdir {name}/build"]
        command += ["--target", f"{architecture}-linux", f"{name}/package.spec"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main():
    of = defaultdict(list)
    for package in json.loads(Path(sys.argv[1]).read_text()):
        of[package["repository"]].append(package)
    rpms = shutil.which("rpmbuild")
    for repository, packages in of.items():
        folder = Path(repository)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if rpms:
            for package in packages:
                make_rpm(package, folder)
            subprocess.run(["createrepo_c", "--quiet", folder], check=True)
        else:
            (folder / "Packages").write_text("\n".join(make_deb(package, folder) for package in packages))


main()
