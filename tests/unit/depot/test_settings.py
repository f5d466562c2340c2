"""The settings file, decoded strictly."""

from __future__ import annotations

import json

import pytest

from slipway.depot.settings import load

from .conftest import CLUSTER_THING, GIVEN, THING, settings_with


def test_the_least_that_must_be_given():
    settings = settings_with()
    assert (settings.models, settings.cluster_models) == (THING, CLUSTER_THING)
    assert (settings.capacity_bytes, settings.upload_bytes) == (0, 2 << 40)
    assert str(settings.key("tls.crt")) == "/etc/slipway-depot/tls.crt"


def test_sizes_are_quantities():
    assert settings_with(capacityLimit="500Gi").capacity_bytes == 500 << 30


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("unknown", 1),
        ("namespace", "Not A Name"),
        ("registry", "https://host:5000"),
        ("registry", "host:5000/path"),
        ("listen", "8443"),
        ("capacityLimit", "many"),
        ("capacityLimit", "0"),
        ("uploadLimit", ""),
        ("uploadsAtOnce", 0),
        ("connections", 1),
        ("tokenSeconds", 5),
        ("model", {"group": "a", "version": "v1", "kind": "A"}),
    ],
)
def test_invalid_values_are_rejected_with_their_field(tmp_path, field, value):
    file = tmp_path / "depot.yaml"
    file.write_text(json.dumps({**GIVEN, field: value}))
    with pytest.raises(ValueError, match=rf"depot\.yaml: .*{field}"):
        load(file)


@pytest.mark.parametrize("text", ["", "[]", "{", "a: b: c", "- 1"])
def test_a_value_that_is_not_a_mapping_is_rejected(tmp_path, text):
    file = tmp_path / "depot.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"depot\.yaml: "):
        load(file)
