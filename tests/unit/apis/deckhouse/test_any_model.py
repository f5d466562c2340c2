"""Whatever the definitions take of models, and whatever publishers and strangers say of them, is planned or refused
with a reason; and the status is one that the definition keeps whole."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from slipway.apis.deckhouse import names
from slipway.apis.deckhouse.settings import deckhouse
from slipway.apis.deckhouse.types import MODEL
from slipway.artifacts.documents.publication import Facts, Publication, encode_publication
from slipway.serving.contract.api import InvalidSpecError, Rejection
from slipway.serving.wire.agent import AgentReport, Progress
from tests import worlds
from tests.schemas import RandomObjects, definition_of, faults, schema_of
from tests.tables import each, seeds

from .cluster import BY_KIND, DIGEST, Cluster

SEEDS = seeds(60)
SCHEMA = schema_of(definition_of(MODEL))["properties"]
TEXTS = {
    "": ("", "a", "x" * 70, "1", "a b", "é", "..", "\x00", "99%", "100%", "x%"),
    ".url": (
        "https://huggingface.co/acme/tiny",
        "https://hf.co/acme/tiny/tree/main",
        "https://hf.co/acme/tiny/blob/refs/pr/1/a.gguf",
        "https://hf.co/a?revision=..",
        "https://hf.co/%2e%2e/%00",
        "https://hf.co//",
        "https://hf.co/[/]",
        "https://ollama.com/library/qwen3:8b",
        "https://ollama.com/library/..",
        "https://ollama.com/library/a:",
    ),
    ".digest": (DIGEST, ""),
    ".lastTransitionTime": ("2026-11-21T09:00:00Z",),
    ".expiresAt": ("2026-11-21T09:00:00Z",),
}
NOTES = ("", "{}", '{"attempt": 2, "failures": 9, "total": 5}', "x" * 30_000, "1800000900", "null", DIGEST)
MESSAGES = ("", "killed", "UnsupportedSource: a.pkl", "InsufficientStorage: full", "Nonsense: x", "x" * 9000, "é" * 400)
PUBLICATIONS = (
    Publication(digest=DIGEST, media_type="", size=1),
    Publication(
        digest=DIGEST,
        media_type="x" * 128,
        size=2**62,
        revision="y" * 256,
        image=DIGEST,
        facts=Facts(
            format="GGUF",
            family="é",
            parameters=2**62,
            tasks=("a", "a", "b"),
            features=("a",) * 32,
            endpoint_types=("Chat", "Chat", "Nonsense"),
            supported_features=("Nonsense",),
            partial=True,
        ),
    ),
)


def case(seed: int) -> tuple[Cluster, str]:
    """A model somewhere on its way, and what others wrote on it."""
    dice = Random(seed)
    generator = RandomObjects(dice, TEXTS, dice.choice((0.01, 0.05, 0.2)))
    cluster = Cluster(capacityLimit=dice.choice(("", "", "100", "5Gi")), image=dice.random() < 0.5)
    source = dice.choice(({"url": dice.choice(TEXTS[".url"])}, {"upload": {}}, {"catalog": {"name": "a"}}))
    cluster.create("tiny", kind=dice.choice(("Model", "ClusterModel")), **source)
    metadata = cluster.models["tiny"]["metadata"]
    written_by_others = (names.PUBLICATION, names.UPLOAD, names.UPLOADED)
    metadata["annotations"] = {name: dice.choice(NOTES) for name in written_by_others if dice.random() < 0.4}
    cluster.reconcile("tiny")
    if cluster.jobs and dice.random() < 0.8:
        done, total = dice.choice(((0, 0), (5, 1), (-5, -1), (2**62, 2**62), (1, 9)))
        pod = cluster.pods[cluster.job("tiny")["metadata"]["uid"]]["metadata"]["uid"]
        report = AgentReport(progress=Progress(done, total, "x" * 5000), resume=dice.choice(("", "a", "x" * 5000)))
        cluster.reports[pod] = report
        cluster.reconcile("tiny")
        if dice.random() < 0.5:
            cluster.ends("tiny", fails=dice.choice(MESSAGES) or "died")
        elif dice.random() < 0.8:
            cluster.ends("tiny", dice.choice((*MESSAGES, *(encode_publication(one).decode() for one in PUBLICATIONS))))
    if dice.random() < 0.3:
        cluster.models["tiny"]["status"] = generator.value(SCHEMA["status"]) or {}
    if dice.random() < 0.2:
        cluster.delete("tiny")
    cluster.now += dice.choice((0, 0, 70, 400, 5000))
    return cluster, cluster.models["tiny"]["kind"]


@each(SEEDS)
def test_a_model_is_planned_or_refused_and_has_a_status_in_any_case(seed: int) -> None:
    cluster, kind = case(seed)
    world, rejection = cluster.world("tiny"), None
    api = BY_KIND[kind]
    try:
        if "deletionTimestamp" in world.resource["metadata"]:
            worlds.finalize(api, world)
        else:
            assert worlds.plan(api, world) == worlds.plan(api, world)
    except InvalidSpecError as error:
        rejection = Rejection(error.reason, error.message)
        assert rejection.reason.isalpha()
    status = worlds.status(api, world, rejection).status
    for condition in status["conditions"]:
        condition["lastTransitionTime"] = "2026-11-21T09:00:00Z"
    assert faults(SCHEMA["status"], status) == []


def test_the_dice_throws_models_of_all_sorts() -> None:
    phases = [case(seed)[0].phase("tiny") for seed in SEEDS]
    assert set(phases) == {"Pending", "WaitForUpload", "Publishing", "Ready", "Failed", "Deleting"}


@pytest.mark.parametrize("value", [None, "", 1, [], ["a"], {"a": 1}, {"name": 1}, {"name": None}])
@pytest.mark.parametrize("field", ["url", "upload", "catalog", "authSecretRef"])
def test_values_that_the_definition_would_reject_raise_no_unexpected_error(field: str, value: Any) -> None:
    cluster = Cluster()
    cluster.create("tiny")
    cluster.models["tiny"]["spec"]["source"][field] = value
    cluster.reconcile("tiny")
    assert cluster.phase("tiny")


@pytest.mark.parametrize("spec", [{}, {"source": None}, {"source": []}, {"source": {}}])
def test_a_spec_without_a_source_fails(spec: Any) -> None:
    cluster = Cluster()
    cluster.create("tiny")
    cluster.models["tiny"]["spec"] = spec
    cluster.reconcile("tiny")
    assert cluster.phase("tiny") == "Failed"


@pytest.mark.parametrize(
    "own",
    [{"publicationsAtOnce": 0}, {"capacityLimit": "x"}, {"uploadUrl": "http://a"}, {"delivery": "NodeCache"}, {"x": 1}],
)
def test_settings_that_are_wrong_are_refused(own: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        deckhouse(Cluster(**own).settings)
