# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Quantities of resources, as Kubernetes writes them: a thousand devices are ``1k``. Pure."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

_FORM = re.compile(r"(\d{1,32}(?:\.\d{0,32})?|\.\d{1,32})(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,2}))?", re.ASCII)
_UNITS = {
    "": Decimal(1),
    **{letter: Decimal(1).scaleb(power) for letter, power in (("n", -9), ("u", -6), ("m", -3))},
    **{letter: Decimal(1000**power) for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Decimal(1024**power) for power, letter in enumerate("KMGTPE", start=1)},
}


def whole(quantity: Any) -> int:
    """How many whole ones a quantity comes to: 1000 of ``1k``, 0 of ``500m``. What is no quantity counts for none, as
    nodes write their own status."""
    matched = _FORM.fullmatch(str(quantity))
    if not matched:
        return 0
    number, suffix, exponent = matched.groups()
    unit = Decimal(1).scaleb(int(exponent)) if exponent else _UNITS[suffix or ""]
    return int(Decimal(number) * unit)
