"""Names that are derived: the controller and the modules derive the same."""

from __future__ import annotations

import pytest
from ansible_collections.slipway.inference.plugins.module_utils import _diagnose as modules

from slipway.kube.values import names


@pytest.mark.parametrize(
    "name", ["tiny", "qwen2.5-0.5b", "a" * 63, "a" * 64, "b." * 40 + "c", "a" * 53 + "-" + "b" * 30, "x" * 253]
)
def test_pods_of_long_names_are_found_by_the_label_that_the_controller_gives_them(name: str) -> None:
    assert modules.label_value(name) == names.label_value(name)
    assert len(names.label_value(name)) <= 63
