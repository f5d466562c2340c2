"""Maps of the models that keys may use."""

from __future__ import annotations

import pytest

from slipway.gateway.routing.keys import Rights
from slipway.gateway.routing.table import Backend, RoutingTable
from slipway.gateway.rules import limits
from slipway.gateway.rules.limits import Permissions, allowed_entries, maps, may_learn_refusal, permitted_backends
from slipway.serving.routing.route import Route

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
    assert permitted_backends(rights, TABLE) == expected


def test_only_keys_with_rights_have_entries() -> None:
    rights = {"reader": Rights(models=("three",)), "few": Rights(requests_per_minute=9)}
    assert maps(rights, allowed_entries(rights, TABLE)) == {
        "limits.map": {"few": "9::::"},
        "restricted.map": {"reader": "1"},
        "allowed.map": {"reader/b:three": "1"},
    }


def test_a_key_with_the_id_or_the_namespace_of_a_refused_model_may_learn_why() -> None:
    refused = {"bad": "InvalidSpec", "a/bad": "InvalidSpec", "b/bad": "NotAllowed", "bad/x": "NotAllowed"}
    rights = {"id": Rights(models=("bad",)), "space": Rights(models=("a/*",)), "label": Rights(selector="!team")}
    entries = allowed_entries(rights, TABLE._replace(refused=refused))
    assert {one for one in entries if "!" in one} == {"id!bad", "space!a/bad"}
    learned = {name: [one for one in refused if may_learn_refusal(own, one)] for name, own in rights.items()}
    assert learned == {"id": ["bad"], "space": ["a/bad"], "label": []}
    assert all(may_learn_refusal(Rights(requests_per_minute=9), one) for one in refused)


def with_backend(**changed: object) -> RoutingTable:
    """Returns a new table with another backend a:one."""
    one = TABLE.backends["a:one"]
    backends = {**TABLE.backends, "a:one": one._replace(**changed)}  # type: ignore[arg-type]
    return TABLE._replace(backends=backends, models=dict(TABLE.models))


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the keys whose allowed backends were computed."""
    owners: list[str] = []

    def counted(rights: Rights, table: RoutingTable) -> frozenset[str]:
        owners.append(rights.owner)
        return permitted_backends(rights, table)

    monkeypatch.setattr(limits, "permitted_backends", counted)
    return owners


RIGHTS = {"k": Rights(owner="a", selector="team=search"), "l": Rights(owner="b", models=("three",))}


def test_changed_endpoints_do_not_recompute_permissions(computed: list[str]) -> None:
    permissions = Permissions()
    assert permissions.update(RIGHTS, TABLE) == {"k/a:one": "1", "l/b:three": "1"}
    for endpoints in (("10.0.0.1:80",), ("10.0.0.2:80",), ()):
        assert permissions.update(dict(RIGHTS), with_backend(endpoints=endpoints)) == {"k/a:one": "1", "l/b:three": "1"}
    assert computed == ["a", "b"]


@pytest.mark.parametrize(
    ("rights", "table", "expected"),
    [
        (RIGHTS, with_backend(route=Route()), {"l/b:three": "1"}),
        (RIGHTS, TABLE._replace(models={"three": "a:two"}), {"k/a:one": "1", "l/a:two": "1"}),
        (RIGHTS, TABLE._replace(backends={}, models={}), {}),
        (RIGHTS, TABLE._replace(refused={"three": "x"}), {"k/a:one": "1", "l/b:three": "1", "l!three": "1"}),
        ({"l": RIGHTS["l"]}, TABLE, {"l/b:three": "1"}),
        ({"k": Rights(owner="a", selector="!team")}, TABLE, {"k/a:two": "1", "k/b:three": "1"}),
        ({}, TABLE, {}),
    ],
    ids=["labels", "ids", "backends", "refused", "keys", "rights", "none"],
)
def test_changed_rights_or_routes_recompute_permissions(
    rights: dict[str, Rights], table: RoutingTable, expected: dict[str, str]
) -> None:
    permissions = Permissions()
    permissions.update(RIGHTS, TABLE)
    assert permissions.update(rights, table) == expected


HOSTILE = ("jwt:a=b", "jwt:x|y,z~@/+", "with space", "semi;colon\n", "back\\slash", "ключ", "%25", "a:b", "x" * 300)


def test_names_of_holders_separate_no_commands() -> None:
    commands = list(limits.grant_commands((name, "b1", "1:2") for name in HOSTILE))
    text = "".join(commands)
    assert text.isascii()
    assert not set(text) & set(";\\\n")
    words = [word for command in commands for word in command.removeprefix("set slipway limits ").split(" ")]
    assert [limits.unquote(word.split(":")[0]) for word in words] == list(HOSTILE)


def test_a_command_is_bounded_in_words_and_bytes() -> None:
    commands = list(limits.grant_commands((f"{number}" + "ä" * 300, "b1", "1:2") for number in range(100)))
    assert max(map(len, commands)) < 8000
    short = list(limits.grant_commands((str(number), "b1", "1:2") for number in range(100)))
    assert [len(command.split(" ")) for command in short] == [43, 43, 23]


def test_answers_of_haproxy_are_read_by_holder() -> None:
    assert limits.parse_entries("jwt%3Aa b1 3 0 7 0\nb b2 4 1 0 9\nbroken\n") == {
        "jwt:a": limits.HolderEntry("b1", 3, until=(7, 0)),
        "b": limits.HolderEntry("b2", 4, waiting=True, until=(0, 9)),
    }
    assert limits.parse_tokens("jwt%3Aa 30\n\n") == {"jwt:a": 30}
    assert limits.parse_dropped("jwt%3Aa b1\n\n") == [("jwt:a", "b1")]
    assert list(limits.drop_commands([("jwt:a", "b1", 3)])) == ["drop slipway limits jwt%3Aa:b1:3"]
