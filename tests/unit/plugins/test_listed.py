# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A list of names, whichever way they were given."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.slipway.inference.plugins.filter.listed import listed


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("", []),
        ("krypton", ["krypton"]),
        ("krypton,kubeai", ["krypton", "kubeai"]),
        (" krypton, kubeai\nllmkube\n", ["krypton", "kubeai", "llmkube"]),
        (["krypton", "a name"], ["krypton", "a name"]),
        ([{"name": "own"}], [{"name": "own"}]),
    ],
)
def test_texts_and_lists_become_lists(given: Any, names: list[Any]) -> None:
    assert listed(given) == names


@pytest.mark.parametrize("given", [None, 3, {"a": "b"}])
def test_anything_else_is_refused(given: Any) -> None:
    with pytest.raises(AnsibleFilterError, match="Names must be a list"):
        listed(given)
