"""Parsing and validation of a Model. Pure."""

from __future__ import annotations

import re

import msgspec

from slipway.apis.krypton.types import ModelSpec
from slipway.artifacts.locations.huggingface import HuggingFaceFile
from slipway.kube.objects import Object
from slipway.kube.values.times import parse_duration
from slipway.serving.contract.api import InvalidSpecError, World

SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
DEFAULT_STARTUP_SECONDS = 600


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A Model that can be served."""

    name: str
    namespace: str
    spec: ModelSpec
    weights: HuggingFaceFile
    startup_seconds: int
    """Maximum seconds that a pod may take to start, including the download."""


class ModelView(msgspec.Struct, frozen=True):
    """A Model, valid or not, and the observed state of the cluster. Slipway also writes a status for an invalid
    Model."""

    world: World
    model: Model | None
    fault: InvalidSpecError | None = None
    """Why the Model is invalid; None: it is valid."""

    def served(self) -> Model:
        """Return the valid Model. Raise InvalidSpecError if the Model cannot be served."""
        if self.model is None:
            raise self.fault or InvalidSpecError("InvalidSpec", "it cannot be read")
        return self.model


def resolve(world: World) -> ModelView:
    """Return the view of the Model in ``world.resource``. An invalid Model raises no error: the view contains the
    reason why it cannot be served."""
    try:
        return ModelView(world, _parse_model(world.resource))
    except InvalidSpecError as error:
        return ModelView(world, None, error)


def _parse_model(resource: Object) -> Model:
    """Parse a Model. Raise InvalidSpecError if its name is not a valid Service name, or its spec is invalid."""
    name = resource["metadata"]["name"]
    if not SERVICE_NAME.fullmatch(name):
        text = f"{name!r} is not a valid Service name. Use at most 63 of a-z, 0-9 and -, starting with a letter"
        raise InvalidSpecError("InvalidSpec", text)
    try:
        spec = msgspec.convert(resource["spec"], ModelSpec)
    except msgspec.ValidationError as error:
        raise InvalidSpecError("InvalidSpec", str(error)) from error
    startup_seconds = _startup_seconds(spec)
    weights = HuggingFaceFile(spec.source.huggingface, spec.source.file)
    fault = weights.fault("spec.source.huggingface", "spec.source.file")
    if fault:
        raise InvalidSpecError("InvalidSpec", fault)
    return Model(
        name=name,
        namespace=resource["metadata"]["namespace"],
        spec=spec,
        weights=weights,
        startup_seconds=startup_seconds,
    )


def _startup_seconds(spec: ModelSpec) -> int:
    try:
        seconds = parse_duration(spec.startup_timeout)
    except ValueError as error:
        raise InvalidSpecError("InvalidSpec", f"spec.startupTimeout: {error}") from error
    # Typed Go clients cannot omit a duration, so their zero value means the default.
    return max(1, round(seconds)) if seconds else DEFAULT_STARTUP_SECONDS
