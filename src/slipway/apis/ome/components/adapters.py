"""Adapters: FineTunedWeights that a service adds to its model, and the engine arguments for these weights. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from slipway.apis.ome.models.storage import Mount, mount_of, parse_storage
from slipway.engines import arguments
from slipway.engines.programs.vllm import VLLM
from slipway.engines.recognition import Recognised, values_of_flags
from slipway.kube.objects import Object, as_object
from slipway.serving.contract.api import InvalidSpecError
from slipway.serving.contract.settings import Settings

LORA = frozenset(("", "lora"))
"""Training strategies of weights that engines can load at startup. An empty string means that the strategy is not
specified."""


class Adapter(msgspec.Struct, frozen=True, kw_only=True):
    """A FineTunedWeight that a service adds to its base model, or serves instead of the base model."""

    mount: Mount
    strategy: str = ""
    """Training strategy in lower case, such as ``lora``. Empty if the FineTunedWeight does not specify one."""
    merged: bool = False
    """Whether the weights are a complete model, which replaces the base model."""
    file: str = ""
    """Name of the file if the weights are a single file. Empty if the weights are a directory."""

    @property
    def path(self) -> str:
        return f"{self.mount.path}/{self.file}" if self.file else self.mount.path


def adapter_of(weight: Object, settings: Settings) -> Adapter:
    """Return the adapter for a FineTunedWeight. Raise InvalidSpecError if its storage cannot be served."""
    spec = weight["spec"]
    hyper, configuration = (as_object(spec.get(field)) for field in ("hyperParameters", "configuration"))
    stored = parse_storage(weight, settings)
    return Adapter(
        mount=mount_of(weight, settings),
        strategy=str(hyper.get("strategy", "")).lower(),
        merged=configuration.get("merged_weights") is True,
        file=stored.stored_as or (stored.files[0] if len(stored.files) == 1 else ""),
    )


def with_adapters(container: Object, recognised: Recognised, name: str, adapters: Sequence[Adapter]) -> Object:
    """Return the container with engine arguments for ``adapters``, and for the service's ``name`` if the engine would
    otherwise reject requests for that name. Adapters that replace the model need no arguments. If no arguments can be
    appended, ``name`` is left out. ``recognised`` is the engine that the container runs. Raise InvalidSpecError if the
    engine cannot serve the adapters, or if several of them replace the model."""
    added = [adapter for adapter in adapters if not adapter.merged]
    if len(adapters) - len(added) > 1:
        raise _refused(adapters, "only one can replace the model")
    flags = (*(_flags(recognised, added) if added else ()), *_names(recognised, name))
    extended = arguments.with_flags(container, flags) if flags else container
    if extended is None and added:
        raise _refused(
            adapters, "the engine's script does not end with the command: write the command as a list of words"
        )
    return container if extended is None else extended


def _flags(recognised: Recognised, added: Sequence[Adapter]) -> tuple[str, ...]:
    if other := next((adapter for adapter in added if adapter.strategy not in LORA), None):
        raise _refused(added, f"{other.mount.name} is of the strategy {other.strategy[:64]}, not LoRA")
    taken = recognised.engine.program.adapters if recognised.engine and recognised.engine.program else None
    if taken is None:
        what = recognised.engine.name if recognised.engine else "an unknown engine"
        raise _refused(added, f"{what} cannot load them at startup. Use vLLM, SGLang, TGI or llama.cpp")
    flags = taken({adapter.mount.name: adapter.path for adapter in added})
    if duplicate := next(
        (flag for flag in flags if flag.startswith("--") and values_of_flags(recognised.args, flag)), None
    ):
        raise _refused(added, f"the engine's arguments already contain {duplicate}")
    return flags


def _names(recognised: Recognised, name: str) -> tuple[str, ...]:
    """Return the arguments that add the service's name to the engine's model names, or an empty tuple if the engine
    needs none. vLLM only accepts the names on its command line, and the gateway sends the service's name."""
    if recognised.engine is not VLLM or name in recognised.served_names:
        return ()
    names = (
        (*recognised.served_names, name)
        if recognised.served_names
        else (name, *values_of_flags(recognised.args, "--model")[:1])
    )
    return ("--served-model-name", *names)


def _refused(adapters: Sequence[Adapter], why: str) -> InvalidSpecError:
    names = ", ".join(adapter.mount.name for adapter in adapters)
    return InvalidSpecError("FineTunedWeightNotServed", f"spec.model.fineTunedWeights: {names} cannot be served: {why}")
