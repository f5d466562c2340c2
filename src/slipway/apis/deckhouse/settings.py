"""Settings: the operator's choices for Deckhouse's models alone."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from slipway.serving.contract.settings import Settings

KEY_FILE = "/etc/slipway-depot/hmac"
QUANTITY = r"\A([0-9]{1,18}(\.[0-9]{1,9})?(k|[KMGTPE]i?)?)?\Z"
Https = Annotated[str, Meta(pattern=r"\A(https://[^/?#@]+(/[^?#]*)?)?\Z")]


class DeckhouseSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """See :class:`slipway.serving.contract.settings.Settings` for what every API reads."""

    registry: str = ""
    """``host:port`` by which pods reach the registry."""
    depot_url: Https = ""
    """By which pods and the registry reach the depot."""
    upload_url: Https = ""
    """By which users reach the depot; empty: ``depotUrl``."""
    ca: str = ""
    """PEM text of the authority that registry and depot have their certificates from."""
    key_file: str = KEY_FILE
    """With the key that controller and depot share."""
    namespace: str = ""
    """Where registry and depot are, ClusterModels are published and the Secrets of catalogs lie; empty: the system
    namespace."""
    upload_seconds: Annotated[int, Meta(ge=60)] = 1800
    """For how long a user may upload."""
    publications_at_once: Annotated[int, Meta(ge=1)] = 4
    """Models that are published at a time."""
    capacity_limit: Annotated[str, Meta(pattern=QUANTITY)] = ""
    """What all artifacts may have together, such as 500Gi; empty: without limit."""
    namespace_share: Annotated[int, Meta(ge=1, le=100)] = 90
    """Percentage of ``capacity_limit`` that the models of one namespace can use."""
    delivery: Literal["SharedPVC", "ImageVolume"] = "SharedPVC"
    """How models come into pods."""
    storage_class_name: str = ""
    """Of the claims with delivered models; empty: the cluster's default."""
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce"] = "ReadWriteMany"
    """Of these claims."""
    run_as_user: Annotated[int, Meta(ge=0)] = 65532
    """Who fills them. 0 where volumes take no group from pods and so belong to root, as in folders of nodes."""
    node_registry: str = ""
    """``host:port`` by which nodes reach the registry; empty: there are no image volumes."""
    image: bool = False
    """Whether each model is published as an ordinary image, too, which image volumes need."""
    ollama_endpoint: Https = ""
    """A mirror of Ollama's registry; empty: the public one."""

    @property
    def copies(self) -> int:
        """How often the registry has the files of each model."""
        return 2 if self.image else 1


def deckhouse(settings: Settings) -> DeckhouseSettings:
    """Those in the operator's settings. Raises msgspec.ValidationError for what the controller refuses at its start."""
    own = msgspec.convert(settings.of("deckhouse"), DeckhouseSettings)
    return msgspec.structs.replace(
        own, namespace=own.namespace or settings.system_namespace, upload_url=own.upload_url or own.depot_url
    )
