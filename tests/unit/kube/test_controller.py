"""The controller's workers: what each outcome of a reconciliation leads to."""

from __future__ import annotations

import asyncio
import itertools
import time

from slipway.kube.api.errors import ConflictError, ConnectionFailedError, ServerError, TooManyRequestsError
from slipway.kube.caches.informer import Informer
from slipway.kube.objects import DEPLOYMENT, POD, Key, Kind, owner_reference
from slipway.kube.runtime.controller import Controller, Result, owner_keys

PODS = "/api/v1/namespaces/default/pods"
A, B, C = Key("default", "a"), Key("default", "b"), Key("default", "c")


def recording(outcomes):
    """A reconcile function that does what ``outcomes`` says for each key in turn, then succeeds."""
    calls = []

    async def reconcile(key):
        calls.append((key, time.monotonic()))
        remaining = outcomes.get(key) or []
        outcome = remaining.pop(0) if remaining else Result()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return reconcile, calls


def times(calls, key):
    return [at for name, at in calls if name == key]


async def test_each_change_of_an_object_reconciles_it(server, client, metrics, start, eventually):
    reconcile, calls = recording({})
    informer = Informer(client, POD)
    controller = Controller("test", reconcile, metrics=metrics)
    controller.watch(informer)
    start(informer.run())
    start(controller.run())
    await informer.synced.wait()
    await server.put(f"{PODS}/a")
    await eventually(lambda: len(times(calls, A)) == 1)
    await server.remove(f"{PODS}/a")
    await eventually(lambda: len(times(calls, A)) == 2)
    assert b'reconcile_total{controller="test",result="success"} 2.0' in metrics.text()


async def test_row_45_a_poison_object_backs_off_alone(metrics, start, eventually, caplog):
    reconcile, calls = recording({A: [ValueError("poison")] * 50})
    controller = Controller("test", reconcile, metrics=metrics, workers=1)
    start(controller.run())
    controller.queue.add(A)
    while len(times(calls, A)) < 7:
        met = len(times(calls, B))
        controller.queue.add(B)
        await eventually(lambda met=met: len(times(calls, B)) > met)
    waits = [second - first for first, second in itertools.pairwise(times(calls, A))]
    assert all(wait > 0.9 * 0.005 * 2**number for number, wait in enumerate(waits))
    assert "poison" in caplog.text


async def test_a_success_ends_the_backoff(metrics, start, eventually):
    reconcile, calls = recording({A: [ValueError(), ValueError(), ValueError(), Result()]})
    controller = Controller("test", reconcile, metrics=metrics)
    start(controller.run())
    controller.queue.add(A)
    await eventually(lambda: len(calls) == 4)
    assert controller.queue.add_rate_limited(A) == 0.005


async def test_a_result_may_ask_to_be_called_again(metrics, start, eventually):
    reconcile, calls = recording({A: [Result(0.1)]})
    controller = Controller("test", reconcile, metrics=metrics)
    start(controller.run())
    controller.queue.add(A)
    await eventually(lambda: len(calls) == 2)
    assert calls[1][1] - calls[0][1] > 0.08


async def test_row_19_conflicts_are_retried_without_noise(metrics, start, eventually, caplog):
    reconcile, calls = recording({A: [ConflictError("stale")] * 5})
    controller = Controller("test", reconcile, metrics=metrics)
    start(controller.run())
    controller.queue.add(A)
    await eventually(lambda: len(calls) == 6)
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


async def test_row_20_retry_after_is_waited_for_even_when_the_object_changes(metrics, start, eventually):
    reconcile, calls = recording({A: [TooManyRequestsError("slow down", retry_after=1.5)]})
    controller = Controller("test", reconcile, metrics=metrics)
    start(controller.run())
    controller.queue.add(A)
    await eventually(lambda: calls)
    for _unused in range(5):
        controller.queue.add(A)
        controller.queue.add(B)
        await asyncio.sleep(0.01)
    await eventually(lambda: len(times(calls, A)) == 2)
    assert times(calls, A)[1] - times(calls, A)[0] > 1.4
    assert times(calls, B)[0] < times(calls, A)[1]


async def test_row_21_a_server_error_backs_off_its_key_only(metrics, start, eventually):
    reconcile, calls = recording({A: [ServerError("broken")] * 3})
    controller = Controller("test", reconcile, metrics=metrics, workers=1)
    start(controller.run())
    controller.queue.add(A)
    controller.queue.add(B)
    await eventually(lambda: len(times(calls, A)) == 4)
    assert len(times(calls, B)) == 1


async def test_row_6_an_outage_is_not_answered_with_a_storm(metrics, start, eventually):
    keys = [Key("default", str(number)) for number in range(100)]
    reconcile, calls = recording({key: [ConnectionFailedError("away")] * 1000 for key in keys})
    controller = Controller("test", reconcile, metrics=metrics, workers=4)
    start(controller.run())
    began = time.monotonic()
    for key in keys:
        controller.queue.add(key)
    await eventually(lambda: len(calls) >= 8)
    assert len(calls) <= 4 * (1 + int(time.monotonic() - began)), "each worker rests for a second"


def test_an_owner_is_found_by_kind_and_group():
    model = Kind("krypton.ai", "v1alpha1", "Model", "models")
    owner = {"metadata": {"namespace": "default", "name": "c", "uid": "u"}}
    child = {"metadata": {"namespace": "default", "name": "x", "ownerReferences": [owner_reference(model, owner)]}}
    assert list(owner_keys(model)(child)) == [C]
    assert list(owner_keys(Kind("kubeai.org", "v1", "Model", "models"))(child)) == []
    assert list(owner_keys(DEPLOYMENT)(child)) == []
    assert list(owner_keys(model)({"metadata": {"namespace": "default", "name": "x"}})) == []
