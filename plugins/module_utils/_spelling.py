# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""Spelling: which of the names that there are somebody may have meant. Pure, and bounded."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

# Names of so many characters, and so many names, are compared.
CHARACTERS = 100
NAMES = 1000
SUGGESTED = 3
# How alike two names have to be, from 0 to 1.
ALIKE = 0.5


def alike(name: str, choices: Collection[str]) -> list[str]:
    """The likeliest first: at most SUGGESTED names that begin with it, or are written nearly as it is; the one that
    differs in case alone."""
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
    """``Did you mean a or b?``; empty where nothing is like it."""
    names = alike(name, choices)
    return f"Did you mean {' or '.join(names)}?" if names else ""
