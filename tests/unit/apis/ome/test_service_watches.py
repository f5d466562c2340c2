"""Which services a change of a runtime or a model leads to."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.apis.ome import names
from slipway.apis.ome.services.table import SERVICES
from slipway.apis.ome.services.watches import enqueue_services_of_model, enqueue_services_of_runtime
from slipway.kube.caches.store import Change
from slipway.kube.objects import Object
from tests import worlds

from . import services as bench

AUTO, NAMED, OTHER = (
    bench.service("auto"),
    bench.service("named", runtime={"name": "rt"}),
    bench.service("other", runtime={"name": "else"}, model={"name": "big", "fineTunedWeights": ["poet"]}),
)
TUNED = bench.service("tuned", runtime={"name": "else"}, model={"name": "lawyer", "kind": "FineTunedWeight"})
AWAY = bench.service("away") | {"metadata": {**bench.service("away")["metadata"], "namespace": "elsewhere"}}
KNOWN = worlds.known_world(
    SERVICES, bench.SETTINGS, others=[AUTO, NAMED, OTHER, AWAY, TUNED, bench.weight("lawyer", "huge")]
)


def runtimes(change: Change) -> set[str]:
    return {str(one) for one in enqueue_services_of_runtime(change, KNOWN)}


def models(old: Object | None, new: Object | None) -> set[str]:
    kind = {one.kind: one for one in (names.BASE_MODEL, names.CLUSTER_BASE_MODEL, names.FINE_TUNED_WEIGHT)}
    model_kind = kind[(new or old or {})["kind"]]
    return {str(one) for one in enqueue_services_of_model(model_kind)(Change(old, new), KNOWN)}


def changed(obj: Object, **spec: Any) -> Object:
    return {**obj, "spec": {**obj["spec"], **spec}}


def test_a_runtime_of_the_cluster_concerns_who_names_it_and_all_who_name_none() -> None:
    rt = bench.runtime()
    everybody = {"models/auto", "models/named", "elsewhere/away"}
    assert runtimes(Change(None, rt)) == everybody
    assert runtimes(Change(rt, None)) == everybody
    assert runtimes(Change(rt, changed(rt, disabled=True))) == everybody


def test_a_runtime_of_a_namespace_enqueues_nothing_elsewhere() -> None:
    assert runtimes(Change(None, bench.runtime(namespace="models"))) == {"models/auto", "models/named"}
    assert runtimes(Change(None, bench.runtime("x", namespace="elsewhere"))) == {"elsewhere/away"}


def test_a_runtimes_status_enqueues_no_service() -> None:
    rt = bench.runtime()
    assert runtimes(Change(rt, {**rt, "status": {"conditions": []}})) == set()


def test_a_model_concerns_who_names_it_in_either_scope() -> None:
    assert models(None, bench.model()) == {"models/auto", "models/named", "elsewhere/away"}
    assert models(None, bench.model(namespace="models")) == {"models/auto", "models/named"}
    assert models(None, bench.model("big")) == {"models/other"}
    assert models(None, bench.weight("poet")) == {"models/other"}
    assert models(None, bench.model("huge")) == {"models/tuned"}, "by the weight that it names in the model's place"


@pytest.mark.parametrize(
    ("status", "concerned"),
    [({"state": "Ready"}, False), ({"state": "Ready", "nodesReady": ["a"]}, False), ({"state": "Failed"}, True)],
)
def test_how_far_a_download_is_concerns_no_service_but_its_end_does(status: Object, concerned: bool) -> None:
    before = bench.model()
    assert bool(models(before, {**before, "status": status})) == concerned
