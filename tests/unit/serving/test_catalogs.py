"""The choice of a catalog entry, and the messages about ambiguous ones."""

from __future__ import annotations

import pytest

from slipway.serving.wire.catalogs import Catalog, CatalogAddress, Entry, UndecidedError, choose_catalog, choose_entry

ADDRESS = CatalogAddress(url="https://catalog.example", credentials="catalog", refresh_seconds=600)
DIGEST = f"sha256:{'a' * 64}"
READY = Catalog(address=ADDRESS, revision="one", refreshed=1.0)
STALE = Catalog(address=ADDRESS, revision="one", refreshed=1.0, fault="Unreachable", passing=True)
REVOKED = Catalog(address=ADDRESS, revision="one", refreshed=1.0, fault="Unauthorized", message="It says no.")
NEVER = Catalog(address=ADDRESS, fault="Unreachable", message="No response.", passing=True)


def entry(name: str = "tiny", version: str = "", *, active: bool = True) -> Entry:
    return Entry(name=name, version=version, active=active, digest=DIGEST, size=1)


@pytest.mark.parametrize(
    ("catalog", "ready"), [(READY, True), (STALE, True), (REVOKED, False), (NEVER, False)], ids=str
)
def test_the_last_read_catalog_counts_during_a_transient_error(catalog, ready):
    assert catalog.ready is ready


@pytest.mark.parametrize(
    ("catalogs", "requested", "chosen"),
    [
        ({"a": READY}, None, "a"),
        ({"a": STALE}, None, "a"),
        ({"a": READY, "b": REVOKED}, None, "a"),
        ({"a": READY, "b": READY}, "b", "b"),
        ({"a": READY, "b": None}, "a", "a"),
    ],
)
def test_the_named_or_only_ready_catalog_is_chosen(catalogs, requested, chosen):
    assert choose_catalog(catalogs, requested) == chosen


@pytest.mark.parametrize(
    ("catalogs", "requested", "words"),
    [
        ({}, None, "No catalog is ready."),
        ({"a": NEVER}, None, "No catalog is ready."),
        ({"b": READY, "a": READY}, None, "Several catalogs are ready: set sourceName to one of a, b."),
        ({"a": READY, "b": None}, None, "The catalog b has not been read yet."),
        ({"a": None}, "a", "The catalog a has not been read yet."),
        ({"a": READY}, "b", "There is no catalog b."),
        ({"a": NEVER}, "a", "The catalog a is not ready: No response."),
    ],
)
def test_without_a_clear_catalog_nothing_is_chosen_yet(catalogs, requested, words):
    with pytest.raises(UndecidedError) as undecided:
        choose_catalog(catalogs, requested)
    assert (undecided.value.message, undecided.value.passing) == (words, True)


@pytest.mark.parametrize(
    ("entries", "version", "chosen"),
    [
        ([entry(), entry("other")], None, ""),
        ([entry(version="1"), entry(version="2")], "2", "2"),
        ([entry(version="1"), entry(version="2", active=False)], None, "1"),
    ],
)
def test_the_only_active_version_or_the_named_one_is_chosen(entries, version, chosen):
    catalog = Catalog(address=ADDRESS, entries=tuple(entries), refreshed=1.0)
    assert choose_entry(catalog, "a", "tiny", version).version == chosen


@pytest.mark.parametrize(
    ("entries", "version", "words"),
    [
        (
            [entry(version="2"), entry(version="1")],
            None,
            "The catalog a has tiny in several versions: set version to one of 1, 2.",
        ),
        (
            [entry(version="1"), entry(version="2", active=False)],
            "2",
            "The catalog a has no version 2 of tiny: set version to one of 1.",
        ),
        ([entry("other")], None, "The catalog a has no active model tiny."),
        ([entry(active=False)], None, "The catalog a has no active model tiny."),
    ],
)
def test_an_undecided_choice_reports_what_to_write(entries, version, words):
    catalog = Catalog(address=ADDRESS, entries=tuple(entries), refreshed=1.0)
    with pytest.raises(UndecidedError) as undecided:
        choose_entry(catalog, "a", "tiny", version)
    assert (undecided.value.message, undecided.value.passing) == (words, False)
