"""The agent's next actions, for every combination of desired adapters, disk and engine."""

from __future__ import annotations

import pytest

from slipway.loader.agent.plan import Action, Fetch, Load, Remove, Unload, Version, plan
from slipway.serving.wire.agent import Adapter, version

URLS = {version(f"hf://acme/{word}"): f"hf://acme/{word}" for word in ("one", "two")}
ONE, TWO = URLS
A1, A2 = Version("m_a", ONE), Version("m_a", TWO)
B1 = Version("m_b", ONE)


def adapters(*versions: Version, replace: bool = True) -> list[Adapter]:
    return [Adapter(one.name, URLS[one.digest], replace) for one in versions]


FETCH_A1, FETCH_A2 = (Fetch(adapters(one)[0]) for one in (A1, A2))


@pytest.mark.parametrize(
    ("desired", "complete", "partial", "engine", "actions"),
    [
        pytest.param([], [], [], {}, [], id="nothing at all"),
        pytest.param([A1], [], [], {}, [FETCH_A1], id="a new one is fetched"),
        pytest.param([A1], [], [], None, [FETCH_A1], id="also while the engine starts"),
        pytest.param([A1], [], [A1], {}, [FETCH_A1], id="one that was begun is fetched on"),
        pytest.param([A1], [A1], [], None, [], id="a starting engine is waited for"),
        pytest.param([A1], [A1], [], {}, [Load(A1)], id="what is there is loaded, also after a restart"),
        pytest.param([A1], [A1], [], {"m_a": ONE}, [], id="as desired"),
        pytest.param([A2], [A1], [], {"m_a": ONE}, [FETCH_A2], id="the other version stays until the next is there"),
        pytest.param([A2], [A1], [], {}, [FETCH_A2, Load(A1)], id="a restarted engine answers with what is there"),
        pytest.param([A2], [A1, A2], [], {"m_a": ONE}, [Load(A2, swap=True)], id="a swap"),
        pytest.param([A2], [A1, A2], [], {"m_a": TWO}, [Remove(A1)], id="after a swap the files of before go"),
        pytest.param([A2], [A1, A2], [], {}, [Load(A2), Remove(A1)], id="nothing is swapped at an empty engine"),
        pytest.param([], [A1], [], {"m_a": ONE}, [Unload(A1)], id="unloaded before its files go"),
        pytest.param([], [A1], [], {}, [Remove(A1)], id="then they go"),
        pytest.param([], [A1], [], None, [], id="an engine that cannot be asked keeps its files"),
        pytest.param([], [], [A1], None, [Remove(A1)], id="what was only begun goes at once"),
        pytest.param([B1], [A1, B1], [], {"m_a": ONE}, [Load(B1), Unload(A1)], id="one comes, another goes"),
    ],
)
def test_plan(
    desired: list[Version],
    complete: list[Version],
    partial: list[Version],
    engine: dict[str, str] | None,
    actions: list[Action],
) -> None:
    assert plan(adapters(*desired), complete, partial, engine) == actions


@pytest.mark.parametrize(
    ("complete", "engine", "actions"),
    [
        ([A1], {"m_a": ONE}, [Fetch(adapters(A2, replace=False)[0])]),
        ([A1, A2], {"m_a": ONE}, []),
        ([A1, A2], {}, [Load(A2), Remove(A1)]),
        ([A2], {}, [Load(A2)]),
    ],
)
def test_without_leave_to_replace_only_an_empty_place_is_taken(
    complete: list[Version], engine: dict[str, str], actions: list[Action]
) -> None:
    assert plan(adapters(A2, replace=False), complete, [], engine) == actions
