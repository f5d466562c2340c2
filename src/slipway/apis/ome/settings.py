"""Settings: the operator's choices for OME."""

from __future__ import annotations

from typing import Annotated

import msgspec

from slipway.serving.contract.settings import Settings

Root = Annotated[str, msgspec.Meta(pattern=r"^(?!.*/\.\.?(/|$))/[^/]")]
"""The absolute path of a folder that is not the root of the node."""
ROOTS = ("/raid/models", "/mnt/models", "/mnt/data/models")


class OMESettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """See :class:`slipway.serving.contract.settings.Settings` for the settings of every API."""

    namespace: str = "ome"
    """Namespace of the Jobs that load models onto nodes, and of the Secrets that these models name. Only the operator
    may write there."""
    model_roots: tuple[Root, ...] = ROOTS
    """Folders of the nodes that may contain models. The first one is used for models without a path."""
    shared_roots: tuple[Root, ...] = ()
    """Folders of the nodes that may contain models of all namespaces, in addition to their namespace's folder."""
    loads_at_once: Annotated[int, msgspec.Meta(ge=1)] = 3
    """Maximum number of models that one node loads at a time."""
    run_as_user: int = 65532
    """User that fills the models' folders on nodes and becomes their owner first. 0: root."""


def ome(settings: Settings) -> OMESettings:
    """Returns OME's part of the operator's settings. Raises msgspec.ValidationError for values that the controller
    rejects at startup."""
    return msgspec.convert(settings.of("ome"), OMESettings)
