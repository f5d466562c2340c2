# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The source of events against an API server, without ansible-rulebook."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import llmkube_objects as llmkube
import pytest
import yaml
from fake_api import Answer, FakeApi
from krypton_models import FAILED, PATH, PENDING, READY, SPEC

EDA = Path(__file__).resolve().parents[3] / "extensions" / "eda"
PATIENCE = 60
SERVICE = {"apiVersion": "inference.llmkube.dev/v1alpha1", "kind": "InferenceService", "spec": {"modelRef": "m"}}
Event = dict[str, Any]
Next = Callable[[], Awaitable[Event]]


def _loaded() -> Any:
    spec = spec_from_file_location("event_source_models", EDA / "plugins" / "event_source" / "models.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SOURCE = _loaded()


def has_model(api: FakeApi, name: str, status: Event | None = None, **labels: str) -> None:
    metadata = {"name": name, "namespace": "models", "labels": labels}
    api.put(PATH + name, {"apiVersion": "krypton.ai/v1alpha1", "kind": "Model", "metadata": metadata, "spec": SPEC})
    if status:
        api.set_status(PATH + name, **status)


def follow(server: FakeApi, script: Callable[[Next], Awaitable[None]], **args: Any) -> None:
    """Runs the source beside a script that takes its events."""

    async def run() -> None:
        queue: asyncio.Queue[Event] = asyncio.Queue()
        args.setdefault("api", "krypton")
        source = asyncio.create_task(SOURCE.main(queue, {"host": server.url, "api_key": "the-api-key", **args}))
        try:
            await script(lambda: asyncio.wait_for(queue.get(), PATIENCE))
        finally:
            source.cancel()
        assert queue.empty()

    asyncio.run(run())


def short(event: Event) -> tuple[str, str, str, bool]:
    return event["name"], event["before"], event["state"], event["initial"]


def test_a_model_that_fails_is_an_event_with_its_reason(api: FakeApi) -> None:
    has_model(api, "a", PENDING, team="search")

    async def script(get: Next) -> None:
        assert short(await get()) == ("a", "", "waiting", True)
        api.set_status(PATH + "a", **FAILED)
        event = await get()
        assert short(event) == ("a", "waiting", "failed", False)
        assert (event["api"], event["kind"], event["namespace"]) == ("krypton", "Model", "models")
        assert (event["reason"], event["message"]) == ("ImagePullBackOff", "The image nope:1 cannot be pulled.")
        assert event["labels"] == {"team": "search"}
        assert {one["type"] for one in event["conditions"]} == {"Accepted", "Available", "Progressing"}
        api.set_status(PATH + "a", **READY)
        assert short(await get()) == ("a", "failed", "ready", False)
        api.remove(PATH + "a")
        assert short(await get()) == ("a", "ready", "deleted", False)

    follow(api, script)


def test_a_status_without_news_sends_no_event(api: FakeApi) -> None:
    has_model(api, "a", PENDING)

    async def script(get: Next) -> None:
        await get()
        dated = [{**condition, "lastTransitionTime": "2026-01-02T03:04:05Z"} for condition in PENDING["conditions"]]
        api.set_status(PATH + "a", **{**PENDING, "conditions": dated})
        has_model(api, "b")
        assert short(await get()) == ("b", "", "waiting", False)

    follow(api, script)


def test_missed_changes_are_reported_after_the_server_has_forgotten_them(api: FakeApi) -> None:
    has_model(api, "a", PENDING)
    has_model(api, "b", PENDING)

    async def script(get: Next) -> None:
        assert [short(await get()), short(await get())] == [("a", "", "waiting", True), ("b", "", "waiting", True)]
        api.stop()
        api.remove(PATH + "a")
        api.set_status(PATH + "b", **FAILED)
        api.forget()
        api.start()
        assert [short(await get()), short(await get())] == [
            ("a", "waiting", "deleted", False),
            ("b", "waiting", "failed", False),
        ]

    follow(api, script)


def test_models_are_selected_by_namespace_and_labels(api: FakeApi) -> None:
    has_model(api, "a", PENDING, team="ads")
    has_model(api, "b", PENDING, team="search")

    async def script(get: Next) -> None:
        assert short(await get()) == ("b", "", "waiting", True)

    follow(api, script, namespace="models", label_selectors=["team=search"])
    assert {call.path for call in api.calls} == {PATH.rstrip("/")}


def test_services_are_followed_beside_the_models_of_their_api(api: FakeApi) -> None:
    api.put(llmkube.SERVICES + "s", {**SERVICE, "metadata": {"name": "s", "namespace": "models"}})

    async def script(get: Next) -> None:
        event = await get()
        assert (event["api"], event["kind"], event["name"]) == ("llmkube", "InferenceService", "s")

    follow(api, script, api="llmkube")


def test_credentials_that_are_refused_end_the_source(api: FakeApi) -> None:
    api.answers.append(Answer(lambda _call: True, 401, "Unauthorized", "Unauthorized"))
    with pytest.raises(SOURCE.InferenceError, match="rejected the credentials") as raised:
        asyncio.run(SOURCE.main(asyncio.Queue(), {"host": api.url, "api_key": "the-api-key", "api": "krypton"}))
    assert "the-api-key" not in str(raised.value)


def test_an_unknown_api_is_reported_with_the_known_ones(api: FakeApi) -> None:
    with pytest.raises(SOURCE.InferenceError, match="There is no API other, but krypton, kubeai"):
        asyncio.run(SOURCE.main(asyncio.Queue(), {"host": api.url, "api": ["krypton", "other"]}))


def test_the_rulebook_uses_what_events_have(api: FakeApi) -> None:
    has_model(api, "a", FAILED)
    text = (EDA / "rulebooks" / "model_failed.yml").read_text()
    [rulebook] = yaml.safe_load(text)
    assert "slipway.inference.models" in rulebook["sources"][0]

    async def script(get: Next) -> None:
        assert set(re.findall(r"\bevent\.(\w+)", text)) <= set(await get())

    follow(api, script)


def test_it_is_run_by_its_path_without_ansible_s_finder_of_collections(tmp_path: Path) -> None:
    """As ansible-rulebook runs it."""
    home = tmp_path / "ansible_collections" / "slipway"
    home.mkdir(parents=True)
    (home / "inference").symlink_to(EDA.parents[1])
    source = home / "inference" / "extensions" / "eda" / "plugins" / "event_source" / "models.py"
    program = (
        f"import runpy, sys; found = runpy.run_path({str(source)!r}); "
        "print(callable(found['main']), 'kubernetes' in sys.modules)"
    )
    output = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True).stdout
    assert output == "True False\n"
