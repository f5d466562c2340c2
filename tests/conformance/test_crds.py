"""The CustomResourceDefinitions that the collection ships are those of the types, and agree with the originals."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = ROOT / "roles" / "crds" / "files"
SHARED = ROOT.parent / "shared"
COMPARE = SHARED / "conformance" / "crd_diff.py"


def test_the_shipped_definitions_are_those_of_the_types(tmp_path: Path) -> None:
    """Where they are not: ``make generate`` writes them."""
    command = [sys.executable, "-m", "slipway", "crds", str(tmp_path)]
    subprocess.run(command, check=True, timeout=280, env={"PYTHONPATH": str(ROOT / "src")})
    written = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert written == {file.name: file.read_text() for file in FILES.iterdir()}


@pytest.mark.skipif(not COMPARE.exists(), reason="the originals' definitions do not lie beside this checkout")
@pytest.mark.parametrize(
    ("names", "files"),
    [
        ("krypton", "krypton*"),
        ("kubeai", "kubeai*"),
        ("(models|services|routers|adapters|quotas|pools)[.].*llmkube", "llmkube-inference*"),
        ("(models|weights|runtimes|services|benchmarkjobs)[.]ome", "ome-[!am]*"),
        ("ai[.]deckhouse[.]io", "deckhouse*"),
    ],
    ids=["krypton", "kubeai", "llmkube", "ome", "deckhouse"],
)
def test_the_definitions_agree_with_the_originals(names: str, files: str, tmp_path: Path) -> None:
    for original in (SHARED / "reference" / "crds").glob(f"{files}.yaml"):  # others take half a minute to read
        (tmp_path / original.name).symlink_to(original)
    allowed = [word for path in sorted(Path(__file__).parent.glob("allowed*.txt")) for word in ("--allow", str(path))]
    command = [sys.executable, str(COMPARE), str(FILES), str(tmp_path), "--names", names, *allowed]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
