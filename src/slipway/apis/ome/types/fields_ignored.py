"""OME fields without effect, for the condition FieldsIgnored and the table in docs/reference/apis/ome.md. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from slipway.apis.ome.types.service import LATER
from slipway.kube.objects import Object
from slipway.kube.schemas.conditions import Condition
from slipway.kube.schemas.crd import set_fields

COMPONENTS = ("engine", "decoder", "router", "predictor")
OF_COMPONENTS = {
    "timeoutSeconds": "the gateway's limits apply",
    "containerConcurrency": "it only sets the target of `scaleMetric: concurrency`; engines limit requests themselves",
}
SERVICES: Mapping[str, str] = {
    **{f"{name}.{field}": why for field, why in OF_COMPONENTS.items() for name in COMPONENTS},
    "predictor.model.storageUri": "`baseModel` selects the weights",
    "predictor.model.runtimeVersion": "the runtime's image sets the version",
    "predictor.model.protocolVersion": "the engine is detected from its image and command",
    **dict.fromkeys(LATER, "only used by later versions of OME"),
}
"""Field of an InferenceService's spec -> reason why the field has no effect."""
MODELS: Mapping[str, str] = {
    "storage.schemaPath": "the loader finds the files by their names",
}
"""Field of the spec of a BaseModel, ClusterBaseModel or FineTunedWeight -> reason why the field has no effect."""


def ignored(spec: Object, fields: Mapping[str, str]) -> list[str]:
    """Return the fields that a spec sets without effect, each with the reason. ``fields``: field -> reason."""
    return [f"spec.{field} ({fields[field].replace('`', '')})" for field in set_fields(spec, fields)]


def condition(spec: Object, fields: Mapping[str, str], *others: str) -> tuple[Condition, ...]:
    """Return the condition FieldsIgnored, or an empty tuple if there is nothing to report. ``fields``: field -> reason;
    ``others``: additional sentences for the message."""
    names = ignored(spec, fields)
    sentences = [*([f"These have no effect: {', '.join(names)}."] if names else []), *others]
    return (Condition("FieldsIgnored", "True", "UnsupportedFields", " ".join(sentences)),) if sentences else ()


def rows() -> list[str]:
    """Return the rows of the Markdown table in the documentation."""
    reasons: dict[str, list[str]] = {}
    for kind, fields in (("", SERVICES), (" of models", MODELS)):
        for field, why in fields.items():
            reasons.setdefault(why, []).append(f"`{field}`{kind}")
    return [f"| {', '.join(fields)} | {why[0].upper()}{why[1:]}. |" for why, fields in reasons.items()]
