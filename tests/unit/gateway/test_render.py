"""The files that HAProxy reads, as golden files: `SLIPWAY_GOLDEN=write` writes them anew."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from slipway.gateway import errors, haproxy
from slipway.gateway.render import State, files
from slipway.gateway.settings import Settings
from slipway.gateway.table import Backend, RoutingTable
from slipway.serving.route import PrefixHash, Route, ScaleTarget

GOLDEN = Path(__file__).parent / "golden"
HASHED = Route(strategy="PrefixHash", prefix_hash=PrefixHash(mean_load_factor=150))
COLD = Route(scale=ScaleTarget("kubeai.org", "v1", "models", "cold"), labels={"tier": "free", "bad value": "x\ny"})
TABLE = RoutingTable(
    {
        "default:llama": Backend("default", "llama", ("10.0.0.1:8080", "10.0.0.2:8080"), HASHED),
        "team:cold": Backend("team", "cold", (), COLD),
        "team:six": Backend("team", "six", ("[fd00::1]:8080",)),
    },
    {"llama": "default:llama", "default/llama": "default:llama", "cold": "team:cold", "team/cold": "team:cold"},
    {},
    (),
)
STATE = State(TABLE, (("00FF", "alice"),), ready=True)


@pytest.mark.parametrize(
    ("name", "settings", "state"),
    [
        ("first", Settings(), State()),
        ("full", Settings(api_keys_secret="keys", threads=4, listen="127.0.0.1:9000", max_body_bytes=1048576), STATE),
    ],
)
def test_the_files_are_the_golden_ones(name: str, settings: Settings, state: State) -> None:
    made = files(settings, state)
    for file in (
        "haproxy.cfg",
        "models.map",
        "hold.map",
        "wake.map",
        "labels.map",
        "rings.map",
        "keys.map",
        "state.map",
        "paths.map",
    ):
        golden = GOLDEN / name / file
        text = made.get(file, "")
        if os.environ.get("SLIPWAY_GOLDEN") == "write":
            golden.parent.mkdir(parents=True, exist_ok=True)
            golden.write_text(text)
        assert golden.read_text() == text


def test_the_static_part_does_not_depend_on_the_table() -> None:
    version = re.compile(r"slipway_version str\((\w{16})\)")
    found = {match for state in (State(), STATE) for match in version.findall(files(Settings(), state)["haproxy.cfg"])}
    assert found == {haproxy.version(Settings())}
    assert haproxy.version(Settings()) != haproxy.version(Settings(threads=3))


@pytest.mark.parametrize("failure", errors.BY_STATUS)
def test_each_error_file_is_a_whole_answer(failure: errors.Failure) -> None:
    head, _unused, body = errors.error_file(failure).partition("\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {failure.status} ")
    assert f"content-length: {len(body)}" in head
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
    assert "'" not in body, "it would end the quotes in haproxy.cfg"
