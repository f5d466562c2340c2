"""Requests that take the hop for changed bodies."""

from __future__ import annotations

from slipway.gateway.routing.table import Backend, RoutingTable
from slipway.gateway.rules.rewrite import DROPPED_MAP, NAMES_MAP, maps
from slipway.serving.routing.route import Route


def table(*backends: Backend) -> RoutingTable:
    ids = {
        name: backend.name
        for backend in backends
        for name in (*backend.route.models, f"{backend.namespace}/{backend.route.name or backend.service}")
    }
    return RoutingTable({backend.name: backend for backend in backends}, ids, {}, ())


def test_a_qualified_id_becomes_the_first_name_of_its_route() -> None:
    model = Backend("team", "model-llama", (), Route(models=("llama",), name="llama"))
    adapter = Backend("team", "model-llama-fr", (), Route(models=("llama_fr",), name="llama_fr"))
    by_hand = Backend("team", "engine", (), Route())
    names = maps(table(model, adapter, by_hand))[NAMES_MAP]
    assert names == {"team/llama": "llama", "team/llama_fr": "llama_fr", "team/engine": "engine"}


def test_a_longer_name_or_an_unqualified_id_stays() -> None:
    longer = Backend("t", "m", (), Route(models=("much-longer-than-the-id",)))
    slashed = Backend("team", "x", (), Route(models=("org/model", "team/other"), name="y"))
    assert maps(table(longer, slashed))[NAMES_MAP] == {}


def test_the_field_is_hidden_only_from_engines_whose_route_requires_it() -> None:
    whisper = Backend("team", "whisper", (), Route(models=("w",), drop_model_field=True))
    plain = Backend("team", "plain", (), Route(models=("p",)))
    assert maps(table(whisper, plain))[DROPPED_MAP] == {"team:whisper": "1"}
