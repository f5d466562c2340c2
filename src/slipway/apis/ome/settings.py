"""Settings: the operator's choices for OME alone."""

from __future__ import annotations

from typing import Annotated

import msgspec

from slipway.serving.contract.settings import Settings

Root = Annotated[str, msgspec.Meta(pattern=r"^(?!.*/\.\.?(/|$))/[^/]")]
"""The whole path of a folder that is not the root of the node."""
ROOTS = ("/raid/models", "/mnt/models", "/mnt/data/models")


class OMESettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """See :class:`slipway.serving.contract.settings.Settings` for what every API reads."""

    namespace: str = "ome"
    """Where the Jobs run that load models onto nodes, and the Secrets lie that these models name. None but the operator
    may write there."""
    model_roots: tuple[Root, ...] = ROOTS
    """Folders of the nodes below which models may lie; the first one takes those that name no path."""
    shared_roots: tuple[Root, ...] = ()
    """Folders of the nodes below which models of all namespaces may lie, in addition to their namespace's folder."""
    loads_at_once: Annotated[int, msgspec.Meta(ge=1)] = 3
    """Models that one node loads at a time."""
    run_as_user: int = 65532
    """Who fills these folders. Each is given to this user before. 0: root does it."""


def ome(settings: Settings) -> OMESettings:
    """Those in the operator's settings. Raises msgspec.ValidationError for what the controller refuses at its start."""
    return msgspec.convert(settings.of("ome"), OMESettings)
