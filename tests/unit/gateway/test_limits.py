"""What keys may ask, as maps."""

from __future__ import annotations

import pytest

from slipway.gateway import limits
from slipway.gateway.keys import Rights
from slipway.gateway.limits import Permissions, allowed, backends_of, maps
from slipway.gateway.sharing import UNSET, Share
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
    rights = {"reader": Rights(models=("three",)), "few": Rights(requests_per_minute=9)}
    assert maps(rights, allowed(rights, TABLE)) == {
        "limits.map": {"few": "9::::"},
        "restricted.map": {"reader": "1"},
        "allowed.map": {"reader/b:three": "1"},
    }


def with_backend(**changed: object) -> RoutingTable:
    """The table, made anew, with another backend a:one."""
    one = TABLE.backends["a:one"]
    backends = {**TABLE.backends, "a:one": one._replace(**changed)}  # type: ignore[arg-type]
    return TABLE._replace(backends=backends, models=dict(TABLE.models))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """For whose rights it was computed what they may ask."""
    found: list[str] = []

    def counted(rights: Rights, table: RoutingTable) -> frozenset[str]:
        found.append(rights.owner)
        return backends_of(rights, table)

    monkeypatch.setattr(limits, "backends_of", counted)
    return found


RIGHTS = {"k": Rights(owner="a", selector="team=search"), "l": Rights(owner="b", models=("three",))}


def test_endpoints_that_come_and_go_compute_nothing_anew(asked: list[str]) -> None:
    permissions = Permissions()
    assert permissions.of(RIGHTS, TABLE) == {"k/a:one": "1", "l/b:three": "1"}
    for endpoints in (("10.0.0.1:80",), ("10.0.0.2:80",), ()):
        assert permissions.of(dict(RIGHTS), with_backend(endpoints=endpoints)) == {"k/a:one": "1", "l/b:three": "1"}
    assert asked == ["a", "b"]


@pytest.mark.parametrize(
    ("rights", "table", "expected"),
    [
        (RIGHTS, with_backend(route=Route()), {"l/b:three": "1"}),
        (RIGHTS, TABLE._replace(models={"three": "a:two"}), {"k/a:one": "1", "l/a:two": "1"}),
        (RIGHTS, TABLE._replace(backends={}, models={}), {}),
        ({"l": RIGHTS["l"]}, TABLE, {"l/b:three": "1"}),
        ({"k": Rights(owner="a", selector="!team")}, TABLE, {"k/a:two": "1", "k/b:three": "1"}),
        ({}, TABLE, {}),
    ],
    ids=["labels", "ids", "backends", "keys", "rights", "none"],
)
def test_what_permissions_depend_on_computes_them_anew(
    rights: dict[str, Rights], table: RoutingTable, expected: dict[str, str]
) -> None:
    permissions = Permissions()
    permissions.of(RIGHTS, TABLE)
    assert permissions.of(rights, table) == expected


def test_shares_are_read_as_they_are_written() -> None:
    written = Share((1, UNSET, 3, UNSET, 5, 1), (6, UNSET, 8, UNSET, 10))
    assert limits.shares({"team": written.text}) == {"team": written}


def test_what_haproxy_counted_is_read_with_what_is_reserved() -> None:
    keys = """# table: keys, type: string, size:20480, used:2
0x7f1: key=team use=1 conn_cur=2 gpc0=9 gpc1=500 gpc2=90 gpc3=50 gpc4=3 gpc0_rate(60000)=7 gpc1_rate(60000)=400
0x7f2: key=other use=0 conn_cur=0 gpc0=1 gpc1=0 gpc2=0 gpc3=9 gpc4=0 gpc0_rate(60000)=1 gpc1_rate(60000)=0
"""
    days = """# table: days, type: string, size:40960, used:2
0x7f3: key=20261122:team use=0 exp=1 shard=0 gpc0=900 gpc1=90000
0x7f4: key=20261123:team use=0 exp=1 shard=0 gpc0=8 gpc1=480
"""
    found = limits.counted(keys, days, "20261123")
    assert found["team"] == limits.Counted((7, 440, 2, 8, 520, 0), (8, 480), 12, 3)
    assert found["other"].used == (1, 0, 0, 0, 0, 0), "more was released than reserved: HAProxy has begun anew"
    assert set(found) == {"team", "other"}
    wrapped = keys.replace("gpc2=90 gpc3=50", f"gpc2=10 gpc3={2**32 - 20}")
    assert limits.counted(wrapped, days, "20261123")["team"].used[1] == 400 + 30, "HAProxy counts up to 2^32"
