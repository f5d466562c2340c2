"""Faults that only Models with caches, scales and references meet: rows 4, 26, 28, 33, 34, 36, 40 and 42."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from .harness import Api, a_few_at_a_time, crash, parameters
from .kubeai import CLAIM, CONFIG, FINALIZER, KubeAIRun, model
from .proxy import Exchange, Fault, answer, writes

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.disruptive]

LIFE = (
    "create models",
    "create persistentvolumeclaims",
    "create jobs",
    "create services",
    "create deployments",
    "delete deployments",
    "delete jobs",
    "delete persistentvolumeclaims",
    "delete models",
)
"""Writes of a life with a cache around which a controller may die: finalizer, claim, Job, mark, children; then pods,
Job, mark and finalizer again."""
SAMPLE = ("create jobs", True)
"""The case that CI also runs."""
CASES = [
    pytest.param(
        write,
        after,
        id=f"{write}-{'after' if after else 'before'}",
        marks=[] if (write, after) == SAMPLE else [pytest.mark.full],
    )
    for write in LIFE
    for after in (False, True)
]


@pytest_asyncio.fixture(loop_scope="session")
async def idle(api: Api, tmp_path: Path) -> AsyncIterator[KubeAIRun]:
    """A run whose controller is not started yet."""
    async with KubeAIRun(api, tmp_path) as run:
        yield run


Lives = dict[tuple[str, bool], asyncio.Task[None]]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def lives(
    api: Api, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Lives]:
    """The chosen lives."""

    async def one(case: tuple[str, bool]) -> None:
        async with KubeAIRun(api, tmp_path_factory.mktemp("life")) as run:
            await a_life_ends_well(run, *case)

    async with a_few_at_a_time(parameters(request.session.items, "death", "after"), one) as running:
        yield running


@pytest.mark.parametrize(("death", "after"), CASES)
async def test_row_4_a_life_with_a_cache_ends_well_though_the_controller_dies(
    lives: Lives, death: str, after: bool
) -> None:
    await lives[death, after]


async def a_life_ends_well(run: KubeAIRun, label: str, after: bool) -> None:
    injected = Fault(writes(label), crash(run.controller, after=after))
    run.proxy.faults.append(injected)
    await run.controller.start()
    await run.life()
    assert injected.fired, f"no such write: {sorted({write.label for write in run.proxy.writes})}"
    assert (await run.get("PersistentVolumeClaim", CLAIM)) is not None
    assert run.controller.exits == [-signal.SIGKILL]


@pytest.mark.full
async def test_row_4_the_finalizer_is_there_before_anything_else(idle: KubeAIRun) -> None:
    await idle.controller.start()
    await idle.life()
    first = idle.proxy.writes[0]
    assert (first.label, FINALIZER in first.body.decode()) == ("create models", True)


@pytest.mark.full
async def test_row_26_a_kind_that_is_not_installed_is_waited_for_while_krypton_goes_on(idle: KubeAIRun) -> None:
    idle.settings["apis"] = ["krypton", "kubeai"]
    idle.controller = idle.new_controller(idle.proxy, "both")
    missing = Fault(
        lambda one: "/kubeai.org/" in one.request.path and (one.list or one.watch), answer(404, "NotFound"), 10**6
    )
    idle.proxy.faults.append(missing)
    await idle.create("Model", model())
    await idle.controller.start()
    krypton = {
        "apiVersion": "krypton.ai/v1alpha1",
        "kind": "Model",
        "metadata": {"name": "k"},
        "spec": {
            "source": {"huggingface": "acme/tiny", "file": "tiny.gguf"},
            "resources": {"requests": {"cpu": "1M"}},
        },
    }
    await idle.api.call("POST", f"/apis/krypton.ai/v1alpha1/namespaces/{idle.namespace}/models", krypton)
    await idle.until(lambda: idle.get("Deployment", "k"))
    assert await idle.get("Deployment", "model-m") is None
    # Each attempt lists one of two kinds. A hot loop would make hundreds of attempts per second.
    count = len(missing.fired)
    await idle.until(idle.always(lambda: len(missing.fired) > count + 4), what="it no longer asks")
    assert missing.fired[-1].at - missing.fired[count].at > 1
    missing.left = 0
    await idle.until(lambda: idle.get("Deployment", "model-m"))
    assert idle.controller.exits == []


@pytest.mark.full
async def test_row_28_a_scale_in_mid_reconcile_counts(idle: KubeAIRun) -> None:
    async def scaled_first(exchange: Exchange):
        await idle.scale(5)
        return await exchange.forward()

    idle.proxy.faults.append(Fault(writes("start deployments"), scaled_first))
    await idle.controller.start()
    await idle.create("Model", model(autoscalingDisabled=True, replicas=1))
    await idle.has(5)


@pytest.mark.full
async def test_row_28_replicas_never_fall_while_the_autoscaler_is_switched_off_and_on(idle: KubeAIRun) -> None:
    """Fixed by a person or an HPA, autoscaled, fixed again, with a restart in each state."""
    await idle.controller.start()
    idle.requests = {"model-m": 400}
    await idle.create("Model", model())
    await idle.has(4)
    least = asyncio.create_task(_least(idle))
    for number, disabled in enumerate((True, False, True)):
        await idle.patch("Model", "m", {"spec": {"autoscalingDisabled": disabled}})
        await idle.until(idle.observed, what="the change is not observed")
        await idle.replace_leader()
        await idle.reconciles_all(f"later-{number}")
        await idle.scraped(3)
    least.cancel()
    assert idle.seen == {4}
    await idle.has(4)


async def _least(run: KubeAIRun) -> None:
    run.seen = set()
    while True:
        run.seen.update(await run.replicas())
        await asyncio.sleep(0.1)


@pytest.mark.full
async def test_row_28_an_autoscaler_that_was_away_starts_where_it_was(idle: KubeAIRun) -> None:
    """Under load replicas stay; without, they go to the least as configured."""
    await idle.controller.start()
    idle.requests = {"model-m": 300}
    await idle.create("Model", model(scaleDownDelaySeconds=4))
    await idle.has(3)
    watching = asyncio.create_task(_least(idle))
    await idle.replace_leader()
    # Longer than the window of the autoscaler and the delay of scale-down.
    await idle.scraped(6)
    watching.cancel()
    assert idle.seen == {3}
    idle.requests = {}
    await idle.has(1)


@pytest.mark.full
async def test_a_burst_wants_ten_replicas_soon_and_none_as_configured(idle: KubeAIRun) -> None:
    """The original's pace: a look each 10 s, a mean over 10 minutes, so that its first replicas take minutes. Back to
    zero with a short window. How soon is soon is measured by benchmarks/controller."""
    await idle.configure({**CONFIG, "modelAutoscaling": {"interval": "10s", "timeWindow": "10m"}})
    await idle.controller.start()
    await idle.create("Model", model(minReplicas=0, targetRequests=100, scaleDownDelaySeconds=4))
    await idle.has(0)
    idle.requests = {"model-m": 1000}
    await idle.has(10)  # within the patience of the tests: a fraction of what that mean takes to get there
    await idle.configure(CONFIG)
    idle.requests = {}
    await idle.has(0)


@pytest.mark.full
async def test_row_33_a_model_deleted_while_the_controller_is_away_has_its_cache_emptied(idle: KubeAIRun) -> None:
    await idle.controller.start()
    await idle.create("Model", model(cacheProfile="disk"))
    await idle.done("load-cache-m")
    await idle.has(1)
    await idle.controller.close()
    await idle.delete("Model")
    await asyncio.sleep(1)
    assert await idle.get("Model") is not None
    idle.controller = idle.new_controller(idle.proxy, "two")
    await idle.controller.start()
    await idle.done("evict-cache-m")
    await idle.gone()


@pytest.mark.full
async def test_row_33_a_finalizer_taken_off_by_force_leaves_no_children_and_fools_no_successor(idle: KubeAIRun) -> None:
    await idle.controller.start()
    await idle.create("Model", model(cacheProfile="disk"))
    await idle.done("load-cache-m")
    await idle.has(1)
    await idle.controller.close()
    await idle.patch("Model", "m", {"metadata": {"finalizers": None}})
    await idle.delete("Model")

    async def none_left() -> bool:
        return not await idle.all("Deployment") and not await idle.all("Service")

    await idle.until(none_left)
    assert await idle.loaded()
    idle.controller = idle.new_controller(idle.proxy, "two")
    await idle.controller.start()
    await idle.create("Model", model(cacheProfile="disk"))
    # The claim's records are an earlier Model's with that name, so the weights are loaded again.
    await idle.done("load-cache-m")
    await idle.has(1)


@pytest.mark.full
async def test_a_deletion_in_the_foreground_empties_the_cache_too(idle: KubeAIRun) -> None:
    await idle.controller.start()
    await idle.create("Model", model(cacheProfile="disk"))
    await idle.done("load-cache-m")
    await idle.has(1)
    await idle.quiet()
    await idle.delete("Model", propagation="Foreground")
    await idle.done("evict-cache-m")
    await idle.gone()


@pytest.mark.full
async def test_a_namespace_that_is_deleted_does_not_wait_for_an_eviction(idle: KubeAIRun) -> None:
    await idle.controller.start()
    await idle.create("Model", model(cacheProfile="disk"))
    await idle.done("load-cache-m")
    await idle.has(1)
    await idle.quiet()
    await idle.api.call("DELETE", f"/api/v1/namespaces/{idle.namespace}")

    async def no_model() -> bool:
        return await idle.get("Model") is None

    await idle.until(no_model)


@pytest.mark.full
async def test_row_34_three_zero_three_ends_with_three_and_nothing_is_recreated(idle: KubeAIRun) -> None:
    await idle.controller.start()
    await idle.create("Model", model(minReplicas=0, replicas=3, autoscalingDisabled=True))
    await idle.has(3)
    before = await idle.get("Deployment", "model-m")
    for replicas in (0, 3, 0, 3):
        await idle.scale(replicas)
        await asyncio.sleep(0.025)
    await idle.has(3)
    await idle.quiet()
    after = await idle.get("Deployment", "model-m")
    assert before
    assert after
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    idle.no_child_was_deleted()


@pytest.mark.full
async def test_row_36_profiles_are_followed_as_they_come_change_and_go(idle: KubeAIRun) -> None:
    async def refused() -> bool:
        return await idle.reason() == "UnknownProfile"

    async def accepted() -> bool:
        return await idle.reason() == "Valid"

    async def asks_for(cpu: str) -> bool:
        deployment = await idle.get("Deployment", "model-m")
        container = (deployment or {"spec": {"template": {"spec": {"containers": [{}]}}}})["spec"]["template"]["spec"]
        return bool(container["containers"][0].get("resources", {}).get("requests", {}).get("cpu") == cpu)

    await idle.configure(None)
    await idle.controller.start()
    await idle.create("Model", model())
    await idle.create("Model", model("other", resourceProfile=""))
    await idle.until(refused)
    await idle.quiet(2)
    count = len([one for one in idle.proxy.log if one.resource not in ("leases", "events") and not one.watch])
    await asyncio.sleep(5)
    again = [one for one in idle.proxy.log if one.resource not in ("leases", "events") and not one.watch]
    assert len(again) == count, f"polled: {again[count:]}"
    await idle.configure(CONFIG)
    await idle.until(accepted)
    await idle.until(lambda: asks_for("1M"))
    await idle.configure({**CONFIG, "resourceProfiles": {"none": {"requests": {"cpu": "2M"}}}})
    await idle.until(lambda: asks_for("2M"))
    await idle.configure(None)
    await idle.until(refused)
    assert await asks_for("2M")


@pytest.mark.full
async def test_row_40_an_old_and_a_new_controller_change_nothing_of_each_other(idle: KubeAIRun) -> None:
    idle.controller = idle.new_controller(idle.proxy, "old", restart=False)
    await idle.controller.start()
    for name in ("a", "b", "c"):
        await idle.create("Model", model(name))
    for name in ("a", "b", "c"):
        await idle.has(1, name)
    await idle.quiet()
    before = await idle.versions()
    proxy = await idle.new_proxy()
    successor = idle.new_controller(proxy, "new")
    await successor.start()
    await idle.follows(proxy)
    assert not proxy.writes
    idle.controller.signal(signal.SIGTERM)
    await idle.leads(proxy)
    await idle.reconciles_all("later")
    assert before.items() <= (await idle.versions()).items()


@pytest.mark.full
async def test_row_42_many_models_at_a_start_change_nothing_and_are_changed_once_each(idle: KubeAIRun) -> None:
    names = [f"m{number:02d}" for number in range(60)]
    await idle.controller.start()
    await asyncio.gather(*(idle.create("Model", model(name)) for name in names))
    for name in names:
        await idle.has(1, name)
    await idle.quiet()
    before, written = await idle.versions(), len(idle.sent())
    await idle.replace_leader()
    await idle.reconciles_all("later")
    assert before.items() <= (await idle.versions()).items()
    assert [write for write in idle.sent()[written:] if "later" not in write] == []
    written = len(idle.sent())
    config = {**CONFIG, "modelServers": {"VLLM": {"images": {"default": "changed:1"}}}}
    await idle.configure(config)

    async def changed() -> bool:
        deployments = await idle.all("Deployment")
        return all(one["spec"]["template"]["spec"]["containers"][0]["image"] == "changed:1" for one in deployments)

    await idle.until(changed)
    await idle.quiet()
    assert len(idle.sent()) - written == len([*names, "later"])
