# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""Suggestions for misspelled names. All functions are pure, and their cost is limited."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

# Limits of the comparison: the length of a name, and the number of names.
CHARACTERS = 100
NAMES = 1000
SUGGESTED = 3
# Minimum similarity of two names, from 0 to 1.
ALIKE = 0.5


def alike(name: str, choices: Collection[str]) -> list[str]:
    """Return up to SUGGESTED similar names, the likeliest first. A name that differs only in case is the only result.

    Other candidates begin with ``name`` or have a similar spelling.
    """
    names = sorted(one for one in choices if len(one) <= CHARACTERS)[:NAMES]
    if not name or len(name) > CHARACTERS:
        return []
    lower = {one.lower(): one for one in names}
    if name.lower() in lower:
        return [lower[name.lower()]]
    close = [lower[one] for one in get_close_matches(name.lower(), lower, SUGGESTED, ALIKE)]
    begun = [one for one in names if one.startswith(name) and one not in close]
    return [*begun[:SUGGESTED], *close][:SUGGESTED]


def did_you_mean(name: str, choices: Collection[str]) -> str:
    """Return ``Did you mean a or b?``, or an empty string if no name is similar."""
    names = alike(name, choices)
    return f"Did you mean {' or '.join(names)}?" if names else ""
