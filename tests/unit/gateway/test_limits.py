"""What keys may ask, as maps."""

from __future__ import annotations

import pytest

from slipway.gateway.keys import Rights
from slipway.gateway.limits import backends_of, maps
from slipway.gateway.table import Backend, RoutingTable
from slipway.serving.route import Route

TABLE = RoutingTable(
    {
        "a:one": Backend("a", "one", (), Route(labels={"team": "search"})),
        "a:two": Backend("a", "two", ()),
        "b:three": Backend("b", "three", ()),
    },
    {"one": "a:one", "a/one": "a:one", "alias": "a:one", "two": "a:two", "three": "b:three"},
    {},
    (),
)


@pytest.mark.parametrize(
    ("rights", "expected"),
    [
        (Rights(models=("one",)), {"a:one"}),
        (Rights(models=("alias", "gone")), {"a:one"}),
        (Rights(models=("a/*",)), {"a:one", "a:two"}),
        (Rights(selector="team=search"), {"a:one"}),
        (Rights(selector="team in (x)"), set()),
        (Rights(models=("three",), selector="!team"), {"a:two", "b:three"}),
        (Rights(models=("*",)), set()),
    ],
)
def test_models_are_named_by_id_namespace_or_label(rights: Rights, expected: set[str]) -> None:
    assert backends_of(rights, TABLE) == expected


def test_only_keys_with_rights_have_entries() -> None:
    made = maps({"reader": Rights(models=("three",)), "few": Rights(requests_per_minute=9)}, TABLE)
    assert made == {
        "limits.map": {"few": "9::"},
        "restricted.map": {"reader": "1"},
        "allowed.map": {"reader/b:three": "1"},
    }
