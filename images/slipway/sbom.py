"""Writes the bill of materials of the slipway image, in CycloneDX 1.6: what build.sh is about to put into it.

It names the wheels with the hashes of their files, the base image, and the Debian packages that the base has. Equal
inputs give the same bytes, so that equal images stay equal: there is no timestamp, and the serial number is derived.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import uuid
import zipfile
from collections.abc import Iterable, Iterator
from email import message_from_string
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import quote

Json = dict[str, Any]
OWN = "slipway"
NAMESPACE = uuid.UUID("5b0cc7ad-3b1e-5d5c-9e0b-4f4c4d8e5a61")
"""What serial numbers are derived in. It must never change: two bills of one content have one number."""


def wheel_metadata(path: Path) -> Message:
    """What a wheel says about itself.

    Raises:
        ValueError: it holds no METADATA, or no name and version in it.
    """
    with zipfile.ZipFile(path) as archive:
        found = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA") and name.count("/") == 1]
        if len(found) != 1:
            raise ValueError(f"{path.name} is no wheel: it holds {len(found)} files METADATA")
        metadata = message_from_string(archive.read(found[0]).decode())
    if not metadata["Name"] or not metadata["Version"]:
        raise ValueError(f"{path.name} names no package and version")
    return metadata


def wheel(path: Path) -> Json:
    """The component of a wheel. Its hash is that of the file, which the pinned requirements name too."""
    metadata = wheel_metadata(path)
    name, version = metadata["Name"].lower().replace("_", "-").replace(".", "-"), metadata["Version"]
    purl = f"pkg:pypi/{name}@{quote(version, safe='')}"
    component = {
        "type": "application" if name == OWN else "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}],
        "purl": purl,
    }
    if expression := metadata["License-Expression"]:
        component["licenses"] = [{"expression": expression}]
    return component


def debian_packages(status: str, release: str) -> Iterator[Json]:
    """The components of the packages that dpkg's status has as installed; RELEASE is the codename of the Debian."""
    for paragraph in status.split("\n\n"):
        fields = message_from_string(paragraph.lstrip("\n"))
        if fields["Status"] != "install ok installed":
            continue
        name, version, architecture = fields["Package"], fields["Version"], fields["Architecture"]
        purl = f"pkg:deb/debian/{quote(name, safe='')}@{quote(version, safe='')}?arch={architecture}&distro={release}"
        yield {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def base_image(name: str, digest: str) -> Json:
    """The component of the image that ours starts from; DIGEST is ``sha256:...``, of its manifest or, without, its own.

    Raises:
        ValueError: the digest is none.
    """
    algorithm, _unused, content = digest.rpartition("@")[2].partition(":")
    if algorithm != "sha256" or len(content) != 64:
        raise ValueError(f"{digest!r} is no SHA-256 digest of the base image {name}")
    repository, _unused, tag = name.partition("@")[0].rpartition(":")
    return {
        "type": "container",
        "bom-ref": f"{name}@{algorithm}:{content}",
        "name": repository or tag,
        "version": tag if repository else "latest",
        "hashes": [{"alg": "SHA-256", "content": content}],
    }


def bill(wheels: Iterable[Json], base: Json, packages: Iterable[Json]) -> Json:
    """The whole bill.

    Raises:
        ValueError: the package slipway is not among the wheels.
    """
    installed = sorted(wheels, key=lambda component: component["bom-ref"])
    system = sorted(packages, key=lambda component: component["bom-ref"])
    own = next((component for component in installed if component["name"] == OWN), None)
    if own is None:
        raise ValueError(f"no wheel is that of {OWN}")
    image = {"type": "container", "bom-ref": "image", "name": "slipway/slipway", "version": own["version"]}
    contents: Json = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": image},
        "components": [*installed, base, *system],
        "dependencies": [
            {"ref": "image", "dependsOn": sorted(part["bom-ref"] for part in [*installed, base])},
            {"ref": base["bom-ref"], "dependsOn": [package["bom-ref"] for package in system]},
        ],
    }
    return {**contents, "serialNumber": uuid.uuid5(NAMESPACE, json.dumps(contents, sort_keys=True)).urn}


def main() -> None:
    """Reads the arguments and writes the bill."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--wheels", type=Path, required=True, help="the folder of wheels that the image installs")
    parser.add_argument("--base", required=True, help="the name of the base image")
    parser.add_argument("--base-digest", required=True, help="sha256:... of it")
    parser.add_argument("--dpkg-status", type=Path, help="the base's /var/lib/dpkg/status, where it is a Debian")
    parser.add_argument("--release", default="", help="the codename of that Debian")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    status = given.dpkg_status.read_text(encoding="utf-8") if given.dpkg_status else ""
    written = bill(
        (wheel(path) for path in given.wheels.glob("*.whl")),
        base_image(given.base, given.base_digest),
        debian_packages(status, given.release),
    )
    given.output.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    given.output.chmod(0o644)


if __name__ == "__main__":
    main()
