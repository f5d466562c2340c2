# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change in any release.
"""The number of hosts or nodes that may be unavailable before a play fails: a number, or a percentage of all of
them."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError


def share(tolerate: object, total: int) -> int:
    """Return the number that ``tolerate`` allows of ``total``: ``3``, ``"3"``, or ``"5%"``, rounded down. Raise
    AnsibleFilterError for any other value."""
    text = str(tolerate).strip()
    number, percent = text.removesuffix("%").strip(), text.endswith("%")
    if not number.isdecimal() or (percent and int(number) > 100):
        raise AnsibleFilterError(f"The tolerance must be a number or a percentage such as 5%, not {tolerate!r}.")
    return total * int(number) // 100 if percent else int(number)


def tolerated(tolerate: object, total: int) -> int:
    """Return the number that ``tolerate`` allows of ``total``. A percentage above 0% allows at least one, even if
    ``total`` is small."""
    limit = share(tolerate, total)
    return max(limit, 1) if str(tolerate).strip().endswith("%") and share(tolerate, 100) > 0 else limit
