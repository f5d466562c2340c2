"""The files that HAProxy reads, as golden files. `SLIPWAY_GOLDEN=write` rewrites them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from slipway.gateway import errors
from slipway.gateway.haproxy.config.haproxy_cfg import version
from slipway.gateway.haproxy.render import DesiredState, render_files
from slipway.gateway.routing.keys import REFUSED, Rights
from slipway.gateway.routing.table import Backend, RoutingTable
from slipway.gateway.rules import tokens
from slipway.gateway.rules.jwks import VerificationKey
from slipway.gateway.settings import Jwt, Settings
from slipway.serving.routing.route import PrefixHash, Route, ScaleTarget, Target

GOLDEN = Path(__file__).parent / "golden"
HASHED = Route(strategy="PrefixHash", prefix_hash=PrefixHash(mean_load_factor=150))
COLD = Route(scale=ScaleTarget("kubeai.org", "v1", "models", "cold"), labels={"tier": "free", "bad value": "x\ny"})
TABLE = RoutingTable(
    {
        "default:llama": Backend("default", "llama", ("10.0.0.1:8080", "10.0.0.2:8080"), HASHED),
        "team:cold": Backend("team", "cold", (), COLD),
        "team:six": Backend(
            "team",
            "six",
            ("[fd00::1]:8080",),
            Route(targets=(Target(weight=90), Target("new", 10)), paths=("/v1/embeddings",)),
        ),
        "team:new": Backend("team", "new", ("[fd00::2]:8080",), Route(internal=True)),
    },
    {"llama": "default:llama", "default/llama": "default:llama", "cold": "team:cold", "team/cold": "team:cold"},
    {},
    (),
)
STATE = DesiredState(TABLE, (("00FF", "alice"),), ready=True)
JWT = Jwt("https://login.example.org", "slipway", "https://login.example.org/keys")
KEY = VerificationKey("a", "RS256", "-----BEGIN CERTIFICATE-----\n")
SUBJECTS = {"jwt:alice": Rights(models=("llama",)), "jwt:bob": REFUSED, "jwt:*": Rights(requests_per_minute=5)}


@pytest.mark.parametrize(
    ("name", "settings", "state"),
    [
        ("first", Settings(), DesiredState()),
        (
            "full",
            Settings(
                api_keys_secret="keys",
                threads=4,
                listen="127.0.0.1:9000",
                max_body_bytes=1048576,
                count_tokens=True,
                memory_bytes=768 << 20,
            ),
            STATE,
        ),
        ("page", Settings(ui=True, api_keys_secret="keys"), DesiredState()),
        (
            "tokens",
            Settings(api_keys_secret="keys", jwt=JWT),
            STATE._replace(rights=SUBJECTS, allowed={"jwt:alice/default:llama": "1"}, verification=(KEY,)),
        ),
    ],
)
def test_the_files_are_the_golden_ones(name: str, settings: Settings, state: DesiredState) -> None:
    contents = render_files(settings, state)
    for file in (
        "haproxy.cfg",
        "special.map",
        "models.map",
        "hold.map",
        "wake.map",
        "labels.map",
        "rings.map",
        "targets.map",
        "keys.map",
        "state.map",
        "paths.map",
        "plain.map",
        "lacks.map",
        *(("subjects.map", "jwt.map", "limits.map") if settings.jwt else ()),
        *((tokens.USAGE_MAP, tokens.READ_MAP) if settings.count_tokens else ()),
    ):
        golden = GOLDEN / name / file
        text = contents.get(file, "")
        if os.environ.get("SLIPWAY_GOLDEN") == "write":
            golden.parent.mkdir(parents=True, exist_ok=True)
            golden.write_text(text)
        assert golden.read_text() == text


def test_only_a_gateway_that_counts_tokens_pays_for_it() -> None:
    assert "lua.tokens" not in render_files(Settings(), STATE)["haproxy.cfg"]
    counting = render_files(Settings(count_tokens=True, threads=2), STATE)["haproxy.cfg"]
    assert "filter lua.tokens" in counting
    assert [line.split()[-1] for line in counting.splitlines() if "stats socket" in line and "thread" in line] == [
        "1",
        "2",
    ]


def test_only_a_gateway_that_accepts_tokens_pays_for_it() -> None:
    contents = render_files(Settings(api_keys_secret="keys"), STATE)
    assert not any(word in contents["haproxy.cfg"] for word in ("jwt", "txn.holder"))


def test_new_keys_of_the_issuer_do_not_change_the_static_part() -> None:
    settings = Settings(api_keys_secret="keys", jwt=JWT)
    texts = [render_files(settings, STATE._replace(verification=keys))["haproxy.cfg"] for keys in ((), (KEY,))]
    lines = [line for line in texts[1].splitlines() if line not in texts[0].splitlines()]
    assert lines == ["crt-store", f"    load crt /run/gateway/{KEY.file} jwt on"]


@pytest.mark.parametrize(
    ("route", "special"),
    [
        pytest.param(Route(), False, id="ordinary"),
        pytest.param(HASHED, True, id="prefixes"),
        pytest.param(Route(targets=(Target(weight=90), Target("new", 10))), True, id="targets"),
        pytest.param(Route(paths=("/v1/embeddings",)), True, id="paths that its engine lacks"),
    ],
)
def test_requests_to_a_model_that_needs_more_rules_pass_them(route: Route, special: bool) -> None:
    endpoints = ("10.0.0.1:8080", "10.0.0.2:8080")
    backends = {"ns:m": Backend("ns", "m", endpoints, route), "ns:new": Backend("ns", "new", endpoints)}
    table = RoutingTable(backends, {"m": "ns:m", "ns/m": "ns:m", "new": "ns:new"}, {}, ())
    maps = DesiredState(table).maps(Settings())
    # Engines know the model by its plain name.
    assert maps["special.map"] == {"ns/m": "1"} | ({"m": "1"} if special else {})


def test_the_static_part_does_not_depend_on_the_table() -> None:
    pattern = re.compile(r"slipway_version str\((\w{16})\)")
    versions = {
        match
        for state in (DesiredState(), STATE)
        for match in pattern.findall(render_files(Settings(), state)["haproxy.cfg"])
    }
    assert versions == {version(Settings())}
    assert version(Settings()) != version(Settings(threads=3))


@pytest.mark.parametrize("error", errors.BY_STATUS)
def test_each_error_file_is_a_whole_answer(error: errors.ErrorResponse) -> None:
    head, _unused, body = errors.error_file(error, 4096).partition("\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {error.status} ")
    assert f"content-length: {len(body)}" in head
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("error", errors.FAILURES.values(), ids=errors.FAILURES)
def test_each_error_is_json_in_either_shape(error: errors.ErrorResponse) -> None:
    assert set(json.loads(error.body())["error"]) == {"message", "type", "param", "code"}
    anthropic = json.loads(f'{error.anthropic()}"req-1"}}')
    assert (anthropic["type"], set(anthropic["error"])) == ("error", {"type", "message", "code"})
    assert not any(mark in error.body() + error.anthropic() for mark in ("'", "]]")), (
        "it would end the quotes around it"
    )


@pytest.mark.parametrize(
    ("route", "entries"),
    [
        pytest.param(Route(), {}, id="not started for requests"),
        pytest.param(COLD, {"team:a": "1"}, id="started by the gateway"),
        pytest.param(Route(wake_seconds=300), {"team:a": "300s"}, id="started by the controller"),
    ],
)
def test_requests_wait_longer_for_a_model_that_is_started_for_them(route: Route, entries: dict[str, str]) -> None:
    table = RoutingTable({"team:a": Backend("team", "a", (), route)}, {}, {}, ())
    assert DesiredState(table).maps(Settings())["wake.map"] == entries


def test_every_rule_that_answers_with_an_error_leaves_its_shape_to_lua() -> None:
    text = render_files(Settings(ui=True, api_keys_secret="keys", jwt=JWT), STATE)["haproxy.cfg"]
    answers = [line for line in text.splitlines() if "return status" in line and "application/json" in line]
    assert answers
    assert [line for line in answers if "lua.failure(" not in line] == []
