"""Every InferenceService in the original's samples is planned unchanged, and all its fields have an effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.apis.llmkube import SERVICES
from slipway.apis.llmkube.types.model import KIND as MODEL
from slipway.serving.contract.api import Reference, World
from slipway.serving.contract.settings import Settings, Sources
from tests import worlds

SAMPLES = Path(__file__).resolve().parents[5] / "shared" / "reference" / "samples" / "llmkube"
KINDS = ("Model", "InferenceService")
SETTINGS = Settings(sources=Sources(allowed_host_path_roots=("/mnt/models",)))


def samples() -> list[tuple[str, list[dict[str, Any]]]]:
    files = [
        (path.stem, [one for one in yaml.safe_load_all(path.read_text()) if one and one.get("kind") in KINDS])
        for path in sorted(SAMPLES.glob("*.yaml"))
    ]
    return [(name, objects) for name, objects in files if any(one["kind"] == KINDS[1] for one in objects)]


def observed(obj: dict[str, Any]) -> dict[str, Any]:
    metadata = {"namespace": "default", "generation": 1, "uid": "u", "creationTimestamp": "2026-11-21T09:00:00Z"}
    status = {"phase": "Ready", "observedGeneration": 1} if obj["kind"] == "Model" else {}
    return {**obj, "metadata": {**obj["metadata"], **metadata}, "status": status}


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the original's samples are not here")
@pytest.mark.parametrize(("name", "objects"), samples(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_sample_is_planned_as_it_is_written(name: str, objects: list[dict[str, Any]]) -> None:
    models = {one["metadata"]["name"]: observed(one) for one in objects if one["kind"] == "Model"}
    for service in (observed(one) for one in objects if one["kind"] == "InferenceService"):
        world = World(
            resource=service,
            children={},
            pods=[],
            routed=[],
            settings=SETTINGS,
            now=0.0,
            listers=worlds.known_world(
                SERVICES, SETTINGS, {Reference(MODEL, "default", model): manifest for model, manifest in models.items()}
            ),
        )
        spec, hardware = service["spec"], models[service["spec"]["modelRef"]]["spec"].get("hardware", {})
        deployments = [child for child in worlds.plan(SERVICES, world).children if child["kind"] == "Deployment"]
        conditions = {one["type"]: one for one in worlds.status(SERVICES, world, None).status["conditions"]}
        if hardware.get("accelerator") == "metal":
            assert (deployments, conditions["Accepted"]["reason"]) == ([], "MetalOutOfReach")
            continue
        assert conditions["FieldsUsed"]["status"] == "True", conditions["FieldsUsed"]["message"]
        (container,) = deployments[0]["spec"]["template"]["spec"]["containers"]
        gpus = hardware.get("gpu", {}).get("count") or spec.get("resources", {}).get("gpu", 0)
        assert container["image"] == spec.get("image", container["image"])
        assert list(container["resources"].get("limits", {}).values()) == ([str(gpus)] if gpus else [])
        assert ("--tensor-split" in container["args"] or "--tensor-parallel-size" in container["args"]) == (gpus > 1)
