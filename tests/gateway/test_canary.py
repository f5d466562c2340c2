"""Shares of canaries, other requests, and aliases, with a real HAProxy."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import requests

from slipway.gateway.haproxy.runtime_diff import HOLD_MAP
from tests.gateway.conftest import Engine, ask_haproxy, settle, wait_for, waiting
from tests.gateway.standalone import PATIENCE, Standalone

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def pair(make_engine: Callable[..., Engine]) -> tuple[Engine, Engine]:
    """The stable engine and the canary's."""
    return make_engine("old"), make_engine("new")


@pytest.fixture(scope="module")
def served(make_gateway: Callable[..., Standalone]) -> Iterator[Standalone]:
    with make_gateway(holdSeconds=5, threads=2) as gateway:
        yield gateway


def shared(percent: int, canary: str = "new") -> list[dict[str, Any]]:
    """The targets of a route with a canary."""
    return [{"weight": 100 - percent}, {"service": canary, "weight": percent}]


class Split:
    """The model ``m1`` with the canary ``new``."""

    def __init__(self, gateway: Standalone, pair: tuple[Engine, Engine]) -> None:
        self.gateway, self.pair = gateway, pair

    def route(self, percent: int, *, old: bool = True, new: bool = True, **route: Any) -> None:
        """`old`, `new`: which of the two have their endpoint."""
        endpoints = [[engine.endpoint] if there else [] for engine, there in zip(self.pair, (old, new), strict=True)]
        targets = shared(percent)
        self.gateway.route(
            {
                "m1": {"endpoints": endpoints[0], "route": {"targets": targets, **route}},
                "new": {"endpoints": endpoints[1], "route": {"internal": True}},
            }
        )
        settle(self.gateway)

    def shares(self, number: int, model: str = "m1") -> Mapping[str, int]:
        """Sends requests. Returns how many each engine answered."""
        with requests.Session() as session:
            return Counter(self.ask(session, model) for _unused in range(number))

    def ask(self, session: requests.Session, model: str = "m1") -> str:
        answer = session.post(self.gateway.url + CHAT, data=json.dumps({"model": model}), timeout=PATIENCE)
        return answer.headers.get("x-engine", str(answer.status_code))


@pytest.fixture
def split(served: Standalone, pair: tuple[Engine, Engine]) -> Split:
    return Split(served, pair)


@pytest.mark.parametrize(("percent", "number"), [(0, 200), (1, 1000), (10, 1000), (50, 200), (99, 1000), (100, 200)])
def test_a_canary_gets_its_share(split: Split, percent: int, number: int) -> None:
    split.route(percent)
    shares = split.shares(number)
    assert shares["old"] + shares["new"] == number
    assert abs(shares["new"] - number * percent / 100) <= (2 if percent % 100 else 0)


def test_two_models_with_alternating_requests_have_their_shares(split: Split) -> None:
    engines = [[engine.endpoint] for engine in split.pair]
    models = {name: {"endpoints": engines[0], "route": {"targets": shared(1)}} for name in ("m1", "m2")}
    split.gateway.route({**models, "new": engines[1]})
    settle(split.gateway)
    with requests.Session() as session:
        counts = Counter((model, split.ask(session, model)) for _unused in range(1000) for model in models)
    assert all(abs(counts[model, "new"] - 10) <= 2 for model in models)


def test_a_canary_without_endpoints_gets_nothing_and_nothing_waits_for_it(split: Split) -> None:
    split.route(100, new=False)
    assert split.shares(50) == {"old": 50}
    assert waiting(split.gateway) == 0


def test_a_canary_whose_endpoints_are_about_to_go_gets_nothing(split: Split) -> None:
    split.route(100)
    held, server = f"{split.gateway.run}/{HOLD_MAP}", f"static:new/{split.pair[1].endpoint}"
    for leave, come in (
        (f"add map {held} static:new 1", f"del map {held} static:new"),
        (f"set server {server} state maint", f"set server {server} state ready"),
    ):
        ask_haproxy(split.gateway, leave)
        assert split.shares(20) == {"old": 20}
        ask_haproxy(split.gateway, come)
        settle(split.gateway)
        assert split.shares(20) == {"new": 20}


def test_a_canary_answers_for_a_model_without_endpoints_and_where_it_has_none_too_requests_wait(split: Split) -> None:
    split.route(100, old=False)
    assert split.shares(20) == {"new": 20}
    split.route(1, old=False)
    assert split.shares(20) == {"new": 20}
    split.route(1, old=False, new=False)
    with requests.Session() as session:
        assert split.ask(session) == "503"


def test_a_canary_does_not_use_its_own_canary(split: Split) -> None:
    engines = {"m1": split.pair[0].endpoint, "m2": split.pair[1].endpoint}
    others = {"m1": "m2", "m2": "m1"}
    split.gateway.route(
        {
            name: {"endpoints": [engine], "route": {"targets": shared(100, others[name])}}
            for name, engine in engines.items()
        }
    )
    settle(split.gateway)
    assert split.shares(10, "m1") == {"new": 10}
    assert split.shares(10, "m2") == {"old": 10}


def test_requests_for_qualified_ids_and_aliases_are_split_and_get_the_engines_name(split: Split) -> None:
    split.route(100, aliases=["org/alias"])
    for engine in split.pair:
        engine.bodies.clear()
    assert split.shares(1, "static/m1") == split.shares(1, "org/alias") == {"new": 1}
    assert [json.loads(body)["model"] for body in split.pair[1].bodies] == ["m1", "org/alias"]


def test_a_model_is_chosen_by_the_labels_that_its_own_route_has(split: Split) -> None:
    split.route(100, labels={"tier": "free"})
    for selector, status in (("tier=free", 200), ("tier=paid", 404)):
        headers = {"x-label-selector": selector}
        answer = requests.post(split.gateway.url + CHAT, data=b'{"model":"m1"}', headers=headers, timeout=PATIENCE)
        assert answer.status_code == status


def test_requests_are_counted_for_the_service_that_gets_them(split: Split) -> None:
    split.route(100)

    def counted(model: str) -> float:
        text = requests.get(f"{split.gateway.control_url}/metrics", timeout=PATIENCE).text
        name = f'slipway_gateway_requests_total{{code="2xx",model="{model}",namespace="static"}} '
        return sum(float(line.removeprefix(name)) for line in text.splitlines() if line.startswith(name))

    before = counted("m1"), counted("new")
    split.shares(7)
    wait_for(lambda: (counted("m1") - before[0], counted("new") - before[1]) == (0, 7))


def test_aliases_are_not_listed_and_answer_by_themselves(split: Split) -> None:
    split.route(0, aliases=["org/alias"])
    url = f"{split.gateway.url}/v1/models"
    assert [model["id"] for model in requests.get(url, timeout=PATIENCE).json()["data"]] == ["m1"]
    assert requests.get(f"{url}/org/alias", timeout=PATIENCE).json()["id"] == "org/alias"
    for internal in ("new", "static/new"):
        assert requests.get(f"{url}/{internal}", timeout=PATIENCE).status_code == 404
        answer = requests.post(split.gateway.url + CHAT, data=json.dumps({"model": internal}), timeout=PATIENCE)
        assert answer.status_code == 404


def test_a_canary_that_comes_and_goes_costs_no_request(split: Split) -> None:
    split.route(50)
    with requests.Session() as session:
        for turn in range(10):
            split.route(50, new=bool(turn % 2))
            counts = Counter(split.ask(session) for _unused in range(40))
            assert set(counts) <= {"old", "new"}
            assert turn % 2 or "new" not in counts
