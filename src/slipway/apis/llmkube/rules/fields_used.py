"""The condition FieldsUsed, which lists fields that are set but have no effect. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from slipway.kube.schemas.conditions import Condition


def fields_used(unused: Mapping[str, str]) -> Condition:
    """Build the condition that lists the fields of the spec that have no effect. ``unused`` maps each of them to the
    reason."""
    if unused:
        idle = ", ".join(f"{field} ({why})" for field, why in unused.items())
        return Condition("FieldsUsed", "False", "FieldsIgnored", f"These have no effect: {idle}.")
    return Condition("FieldsUsed", "True", "AllUsed", "Every field that is set has an effect.")
