# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The wait survives what happens to an API server and to the way there."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from typing import Any

import pytest
from ansible_collections.slipway.inference.plugins.module_utils._apis import MODELS
from ansible_collections.slipway.inference.plugins.module_utils._auth import connect
from ansible_collections.slipway.inference.plugins.module_utils._client import Client, Request
from ansible_collections.slipway.inference.plugins.module_utils._diagnose import diagnose
from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError
from fake_api import Answer, Call, FakeApi
from krypton_models import PATH, PENDING, READY, SPEC, becomes
from module_run import Run

TASK = {"name": "a", "namespace": "models", "spec": SPEC, "wait_timeout": 120}


def _is_watch(call: Call) -> bool:
    return call.verb == "watch"


def _ready(api: FakeApi) -> None:
    api.set_status(PATH + "a", **READY)


def test_a_cut_stream_is_continued_where_it_was_cut(api: FakeApi, run: Run) -> None:
    api.once("watch", api.cut_streams)
    api.once("watch", lambda: _ready(api))
    assert not run("model", **TASK).failed
    first, second = api.calls_of("watch")
    assert int(second.query["resourceVersion"]) >= int(first.query["resourceVersion"])
    assert api.calls_of("list") == []


def test_a_version_that_the_server_has_forgotten_is_listed_again(api: FakeApi, run: Run) -> None:
    api.controller = becomes(others=PENDING)
    api.answers.append(Answer(_is_watch, 410, "Expired", "too old resource version"))
    api.once("watch", lambda: _ready(api))
    assert not run("model", **TASK).failed
    assert len(api.calls_of("list")) == 1


def test_a_watch_that_ends_in_an_error_event_is_listed_again(api: FakeApi, run: Run) -> None:
    api.once("watch", api.forget)
    api.once("watch", lambda: _ready(api))
    assert not run("model", **TASK).failed
    assert len(api.calls_of("list")) >= 1


def test_a_restart_of_the_server_is_waited_out(api: FakeApi, run: Run) -> None:
    def restart() -> None:
        api.stop()
        time.sleep(1.0)
        api.set_status(PATH + "a", **READY)
        api.start()

    api.once("watch", restart)
    result = run("model", **TASK)
    assert not result.failed
    assert result["results"][0]["waited"] >= 0.9, "it is ready since the server was away for a second"


def test_a_restart_between_the_requests_is_waited_out(api: FakeApi, run: Run) -> None:
    api.controller = becomes(others=READY)
    for _attempt in range(3):
        api.answers.append(Answer(lambda call: call.verb == "apply", cut=True))
    assert not run("model", **TASK).failed
    assert len(api.calls_of("apply")) == 4


def test_requests_slow_down_when_asked_to(api: FakeApi, run: Run) -> None:
    api.controller = becomes(others=READY)
    api.answers.append(
        Answer(lambda call: call.verb == "apply", 429, "TooManyRequests", "slow down", {"Retry-After": "1"})
    )
    started = time.monotonic()
    assert not run("model", **TASK).failed
    assert time.monotonic() - started > 0.9


def test_errors_of_the_server_are_retried(api: FakeApi, run: Run) -> None:
    api.controller = becomes(others=READY)
    api.answers += [
        Answer(lambda _call: True, status, "", "etcdserver: leader changed") for status in (500, 502, 503, 504)
    ]
    assert not run("model", **TASK).failed


def test_a_field_that_the_definition_lacks_is_not_retried(api: FakeApi, run: Run) -> None:
    what = "(models/a; krypton.ai/v1alpha1, Kind=Model)"
    text = f"failed to create typed patch object {what}: .spec.x: field not declared in schema"
    api.answers.append(Answer(lambda call: call.verb == "apply", 500, "", text))
    result = run("model", **TASK)
    assert result["error_code"] == "invalid"
    assert result.cause == "Model models/a was refused. .spec.x: field not declared in schema."
    assert len(api.calls_of("apply")) == 1


def _openapi(**fields: Any) -> str:
    """What the API server says of Krypton's group: a Model with these fields, and templates of pods."""
    model = {
        "x-kubernetes-group-version-kind": [{"group": "krypton.ai", "kind": "Model", "version": "v1alpha1"}],
        "properties": {"spec": {"allOf": [{"$ref": "#/components/schemas/Spec"}]}},
    }
    schemas = {"ai.krypton.Model": model, "Spec": {"properties": fields}, "Other": {"properties": {"minReplicaz": {}}}}
    return json.dumps({"components": {"schemas": schemas}})


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ([".spec.minReplica"], "Did you mean minReplicas?"),
        ([".spec.env[0].valeu"], "Did you mean value?"),
        ([".spec.wholly"], ""),
        ([".spec.nothing.here"], ""),
        ([".spec.minReplica", ".spec.evn"], "Instead of minReplica, did you mean minReplicas? Instead of evn, did you"),
    ],
)
def test_a_field_that_is_misspelled_is_reported_with_a_suggestion(
    api: FakeApi, run: Run, paths: list[str], expected: str
) -> None:
    env = {"items": {"properties": {"name": {}, "value": {}}}}
    text = f"failed to create typed patch object (models/a; krypton.ai/v1alpha1, Kind=Model): errors: {paths}".replace(
        "']", ": field not declared in schema']"
    ).replace("',", ": field not declared in schema',")
    api.answers += [
        Answer(lambda call: call.verb == "apply", 500, "", text),
        Answer(
            lambda call: call.path == "/openapi/v3/apis/krypton.ai/v1alpha1",
            200,
            text=_openapi(minReplicas={}, env=env),
        ),
    ]
    result = run("model", **TASK)
    assert result["error_code"] == "invalid"
    assert expected in result["msg"]
    assert ("did you mean" in result["msg"].lower()) is bool(expected)


def test_without_access_to_the_schemas_only_the_field_is_reported(api: FakeApi, run: Run) -> None:
    what = "(models/a; krypton.ai/v1alpha1, Kind=Model)"
    text = f"failed to create typed patch object {what}: .spec.x: field not declared in schema"
    api.answers += [
        Answer(lambda call: call.verb == "apply", 500, "", text),
        Answer(lambda call: call.path.startswith("/openapi"), 403, "Forbidden", "forbidden"),
    ]
    assert run("model", **TASK).cause == "Model models/a was refused. .spec.x: field not declared in schema."


def test_without_the_right_to_watch_it_polls(api: FakeApi, run: Run) -> None:
    api.controller = becomes(others=PENDING)
    api.answers.append(Answer(_is_watch, 403, "Forbidden", 'models.krypton.ai is forbidden: User "u" cannot watch'))
    api.once("list", lambda: _ready(api))
    assert not run("model", **TASK).failed
    assert len(api.calls_of("watch")) == 1
    assert api.calls_of("list")


def test_trouble_at_the_end_is_reported(api: FakeApi, run: Run) -> None:
    api.controller = becomes(others=PENDING)
    run("model", **TASK, wait=False)
    api.once("watch", api.stop)
    result = run("model", **{**TASK, "wait_timeout": 5})
    assert result["error_code"] == "timeout"
    assert result["msg"].startswith(
        "Model models/a is not ready after 5 s. The last request to the API server failed: "
        f"{api.url} cannot be reached: Connection refused."
    )
    assert result["msg"].endswith("WaitingForPods: No replica answers yet.")


@pytest.mark.parametrize("event", [{"type": "ADDED", "object": {}}, {"object": {}}])
def test_a_watch_that_cannot_be_understood_ends_the_wait_at_once(api: FakeApi, run: Run, event: object) -> None:
    api.controller = becomes(others=PENDING)
    api.answers.append(Answer(_is_watch, 200, text=json.dumps(event) + "\n"))
    result = run("model", **{**TASK, "wait_timeout": 600})
    assert len(api.calls_of("watch")) == 1
    assert result["error_code"] == "internal_error"
    assert "The watch of models.krypton.ai in models ended: KeyError" in result["msg"]


def test_a_page_that_is_no_answer_of_an_api_server_is_reported(api: FakeApi, run: Run) -> None:
    api.answers.append(Answer(lambda _call: True, 200, text="<html>Please log in"))
    result = run("model", **TASK)
    assert result["error_code"] == "server_error"
    assert result.cause == f"{api.url} is not a Kubernetes API server: <html>Please log in"


def test_credentials_in_the_address_of_another_server_are_not_shown(api: FakeApi, run: Run) -> None:
    api.answers.append(Answer(lambda _call: True, 200, text="<html>Please log in"))
    result = run("model", **{**TASK, "host": api.url.replace("://", "://user:a-secret@")})
    assert result.cause == f"{api.url} is not a Kubernetes API server: <html>Please log in"


def test_a_pause_without_end_is_not_kept(api: FakeApi, run: Run) -> None:
    api.controller = becomes(others=READY)
    api.answers.append(Answer(lambda _call: True, 429, "TooManyRequests", "slow", {"Retry-After": "inf"}))
    assert not run("model", **TASK).failed


def test_a_server_that_accepts_and_never_answers_is_left_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the patience that each request is sent with: without the deadline it is half a minute."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connection = connect({"host": f"http://127.0.0.1:{silent.getsockname()[1]}", "api_key": "k"}, {})
        send, patience = connection.request, []

        def sent(*given: Any, **options: Any) -> Any:
            patience.append(given[-1])
            return send(*given, **options)

        monkeypatch.setattr(connection, "request", sent)
        client = Client(connection, print)
        pod = {"metadata": {"name": "a", "namespace": "models", "uid": "u"}}
        for ask in (
            lambda until: client.call(Request("get", MODELS["krypton"], "models", "a"), until),
            lambda until: diagnose(client, MODELS["krypton"], pod, until),
        ):
            with contextlib.suppress(InferenceError):
                ask(time.monotonic() + 1)
    assert max(patience) <= 1
