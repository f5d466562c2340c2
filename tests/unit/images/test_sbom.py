"""The image's bill of materials names what goes into it, in valid CycloneDX 1.6, and the same for the same contents."""

from __future__ import annotations

import hashlib
import json
import re
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from .conftest import IMAGES

SCRIPT = IMAGES / "slipway/sbom.py"
SBOM = runpy.run_path(str(SCRIPT))  # an import would leave a folder of byte code beside what is hashed
BASE = "registry.example:5000/python:3.11.16"
DIGEST = "sha256:" + "ab" * 32
STATUS = """Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u14
Description: GNU C Library
 Status: install ok installed

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: g++
Status: install ok installed
Architecture: all
Version: 1:2~rc1
"""
# What the schema of CycloneDX 1.6 demands of the parts that we write.
TYPES = {
    "application", "framework", "library", "container", "platform", "operating-system", "device", "device-driver",
    "firmware", "file", "machine-learning-model", "data", "cryptographic-asset",
}  # fmt: skip
SERIAL = r"urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
FIELDS = {"bomFormat", "specVersion", "serialNumber", "version", "metadata", "components", "dependencies"}
COMPONENT_FIELDS = {"type", "bom-ref", "name", "version", "hashes", "licenses", "purl"}


def make_wheel(folder: Path, name: str, version: str, licence: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    text = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            f"{name}-{version}.dist-info/METADATA", text + (f"License-Expression: {licence}\n" if licence else "")
        )
        archive.writestr(f"{name}/_vendor/other-1.dist-info/METADATA", "Name: other\nVersion: 1\n")
    return path


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    make_wheel(folder, "slipway", "0.4.0", "Apache-2.0")
    make_wheel(folder, "Typing_Extensions", "4.16.0")
    return folder


def written(
    wheels: Path, output: Path, base: str = "registry.example:5000/python:3.11.16", digest: str = DIGEST
) -> bytes:
    status = wheels.parent / "status"
    status.write_text(STATUS)
    command = [sys.executable, SCRIPT, "--wheels", wheels, "--base", BASE, "--base-digest", DIGEST]
    command += ["--dpkg-status", status, "--release", "bookworm", "--output", output]
    subprocess.run(command, check=True, timeout=60)
    return output.read_bytes()


def bill(wheels: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(written(wheels, wheels.parent / "bill.json"))
    return loaded


def test_it_is_cyclonedx(wheels: Path) -> None:
    sbom = bill(wheels)
    parts = [sbom["metadata"]["component"], *sbom["components"]]
    refs = [part["bom-ref"] for part in parts]

    assert (sbom["bomFormat"], sbom["specVersion"], sbom["version"]) == ("CycloneDX", "1.6", 1)
    assert set(sbom) <= FIELDS
    assert re.fullmatch(SERIAL, sbom["serialNumber"])
    assert all(set(part) <= COMPONENT_FIELDS and part["name"] and part["type"] in TYPES for part in parts)
    assert all(
        digest["alg"] == "SHA-256" and re.fullmatch(r"[0-9a-f]{64}", digest["content"])
        for part in parts
        for digest in part.get("hashes", [])
    )
    assert len(set(refs)) == len(refs)
    assert {ref for entry in sbom["dependencies"] for ref in [entry["ref"], *entry["dependsOn"]]} == set(refs)
    assert all(len(set(entry["dependsOn"])) == len(entry["dependsOn"]) for entry in sbom["dependencies"])


def test_it_names_every_wheel_by_the_hash_of_its_file(wheels: Path) -> None:
    components = {
        part["purl"]: part for part in bill(wheels)["components"] if part.get("purl", "").startswith("pkg:pypi/")
    }

    assert set(components) == {"pkg:pypi/slipway@0.4.0", "pkg:pypi/typing-extensions@4.16.0"}
    own = components["pkg:pypi/slipway@0.4.0"]
    data = (wheels / "slipway-0.4.0-py3-none-any.whl").read_bytes()
    assert own["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(data).hexdigest()}]
    assert own["licenses"] == [{"expression": "Apache-2.0"}]


def test_it_names_the_base_and_what_is_installed_in_it(wheels: Path) -> None:
    parts = bill(wheels)["components"]

    assert [part for part in parts if part["type"] == "container"] == [
        {
            "type": "container",
            "bom-ref": f"registry.example:5000/python:3.11.16@{DIGEST}",
            "name": "registry.example:5000/python",
            "version": "3.11.16",
            "hashes": [{"alg": "SHA-256", "content": "ab" * 32}],
        }
    ]
    assert [part["purl"] for part in parts if part.get("purl", "").startswith("pkg:deb/")] == [
        "pkg:deb/debian/g%2B%2B@1%3A2~rc1?arch=all&distro=bookworm",
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u14?arch=amd64&distro=bookworm",
    ]


def test_equal_contents_give_equal_bytes_and_others_another_serial_number(wheels: Path, tmp_path: Path) -> None:
    first = written(wheels, tmp_path / "1.json")
    again = written(wheels, tmp_path / "2.json")
    make_wheel(wheels, "added", "1")
    other = written(wheels, tmp_path / "3.json")

    assert first == again
    assert json.loads(first)["serialNumber"] != json.loads(other)["serialNumber"]


@pytest.mark.parametrize("digest", ["", "sha256:", "md5:" + "ab" * 32, "latest"])
def test_a_base_without_a_digest_is_refused(digest: str) -> None:
    with pytest.raises(ValueError, match="no SHA-256 digest of the base image python:1"):
        SBOM["base_image"]("python:1", digest)


def test_an_archive_without_wheel_metadata_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.py", "")

    with pytest.raises(ValueError, match=r"a-1-py3-none-any\.whl is no wheel"):
        SBOM["wheel"](path)


def test_a_bill_without_slipway_is_refused() -> None:
    with pytest.raises(ValueError, match="no wheel is that of slipway"):
        SBOM["bill"]([], SBOM["base_image"]("python:1", DIGEST), [])
