"""Label selectors have the same meaning as in Kubernetes."""

from __future__ import annotations

import time

import pytest

from slipway.gateway.routing.selector import label_text
from slipway.serving.routing.selector import InvalidSelectorError, chosen, parse

from ...selectors import BROKEN, FULFILLED, LABELS, UNFULFILLED


@pytest.mark.parametrize("text", FULFILLED)
def test_labels_that_fulfil_a_selector(text: str) -> None:
    assert chosen(parse(text), LABELS)


@pytest.mark.parametrize("text", UNFULFILLED)
def test_labels_that_do_not_fulfil_a_selector(text: str) -> None:
    assert not chosen(parse(text), LABELS)


@pytest.mark.parametrize("text", BROKEN)
def test_an_invalid_selector_is_rejected(text: str) -> None:
    with pytest.raises(InvalidSelectorError):
        parse(text)


@pytest.mark.parametrize(
    "text", ["app in (a" + " " * 40_000 + "b)", "a" * 40_000, "app" + " " * 40_000 + "x", "a/" * 20_000]
)
def test_a_long_selector_is_refused_soon(text: str) -> None:
    began = time.thread_time()  # what others compute meanwhile does not count
    with pytest.raises(InvalidSelectorError):
        parse(text)
    assert time.thread_time() - began < 1


def test_all_selectors_have_to_be_fulfilled() -> None:
    assert chosen(parse(), LABELS)
    assert chosen(parse("app", "tier=1"), LABELS)
    assert not chosen(parse("app", "tier=2"), LABELS)
    with pytest.raises(InvalidSelectorError):
        parse("none", "app=(")


def test_invalid_labels_are_omitted() -> None:
    assert label_text({"b": "2", "a/a": "", "bad key": "1", "c": "bad,value"}) == "a/a=,b=2"
