"""The operator's settings for OME."""

from __future__ import annotations

from typing import Annotated

import msgspec

from slipway.serving.contract.settings import Settings

Root = Annotated[str, msgspec.Meta(pattern=r"^(?!.*/\.\.?(/|$))/[^/]")]
"""An absolute path of a node directory other than ``/``, without ``.`` or ``..`` segments."""
ROOTS = ("/raid/models", "/mnt/models", "/mnt/data/models")


class OMESettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The operator's settings for OME. :class:`slipway.serving.contract.settings.Settings` has the settings common to
    all APIs."""

    namespace: str = "ome"
    """Namespace of the Jobs that load models onto nodes or remove them, and of the Secrets with the models'
    credentials. Only the operator may write to this namespace."""
    model_roots: tuple[Root, ...] = ROOTS
    """Node directories that may contain models. BaseModels are in the subdirectory of their namespace. Models without a
    path are stored in the first directory."""
    shared_roots: tuple[Root, ...] = ()
    """Node directories that may contain models of any namespace, in addition to the subdirectories of the namespaces in
    ``model_roots``."""
    loads_at_once: Annotated[int, msgspec.Meta(ge=1)] = 3
    """Maximum number of models that one node loads at a time. One cluster-scoped model may be loaded in addition."""
    run_as_user: int = 65532
    """UID of the loader on nodes, which owns the model directories. 0 is root."""


def ome(settings: Settings) -> OMESettings:
    """Return OME's part of the operator's settings. Raise msgspec.ValidationError for invalid values, which the
    controller rejects at startup."""
    return msgspec.convert(settings.of("ome"), OMESettings)
