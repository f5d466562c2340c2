# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change in any release.

"""Kubernetes quantities, such as 2, 500m, 24Gi or 1k. All functions are pure."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

# Lengths are limited because a node writes its own status, and 1e999999999 would take all memory.
FORM = r"(\d{1,32}(?:\.\d{0,32})?|\.\d{1,32})(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,2}))?"
_FORM = re.compile(FORM, re.ASCII)
_UNITS = {
    "": Decimal(1),
    **{suffix: Decimal(1).scaleb(power) for suffix, power in (("n", -9), ("u", -6), ("m", -3))},
    **{suffix: Decimal(1000**power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024**power) for power, suffix in enumerate("KMGTPE", start=1)},
}


def whole_number(quantity: Any) -> int:
    """Return the quantity, rounded down: 1000 for ``1k``, 0 for ``500m``. Invalid and negative quantities are 0."""
    matched = _FORM.fullmatch(str(quantity))
    if not matched:
        return 0
    number, suffix, exponent = matched.groups()
    unit = Decimal(1).scaleb(int(exponent)) if exponent else _UNITS[suffix or ""]
    return int(Decimal(number) * unit)
