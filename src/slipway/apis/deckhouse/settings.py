"""Settings: the operator's settings of only Deckhouse's models."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from slipway.serving.contract.settings import Settings

KEY_FILE = "/etc/slipway-depot/hmac"
QUANTITY = r"\A([0-9]{1,18}(\.[0-9]{1,9})?(k|[KMGTPE]i?)?)?\Z"
Https = Annotated[str, Meta(pattern=r"\A(https://[^/?#@]+(/[^?#]*)?)?\Z")]


class DeckhouseSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Settings of this API. See :class:`slipway.serving.contract.settings.Settings` for those of all APIs."""

    registry: str = ""
    """``host:port`` of the registry for pods."""
    depot_url: Https = ""
    """URL of the depot for pods and the registry."""
    upload_url: Https = ""
    """URL of the depot for users; empty: ``depotUrl``."""
    ca: str = ""
    """CA certificate of registry and depot in PEM format."""
    key_file: str = KEY_FILE
    """File with the key shared by controller and depot."""
    namespace: str = ""
    """Namespace of registry and depot, in which ClusterModels are published and the Secrets of catalogs are stored;
    empty: the system namespace."""
    upload_seconds: Annotated[int, Meta(ge=60)] = 1800
    """How long a user may upload."""
    publications_at_once: Annotated[int, Meta(ge=1)] = 4
    """Maximum models published concurrently."""
    capacity_limit: Annotated[str, Meta(pattern=QUANTITY)] = ""
    """Maximum total size of all artifacts, such as 500Gi; empty: unlimited."""
    namespace_share: Annotated[int, Meta(ge=1, le=100)] = 90
    """Percentage of ``capacity_limit`` that the models of one namespace can use."""
    delivery: Literal["SharedPVC", "ImageVolume"] = "SharedPVC"
    """How models get into pods."""
    storage_class_name: str = ""
    """StorageClass of claims with delivered models; empty: the cluster's default."""
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce"] = "ReadWriteMany"
    """Access mode of claims with delivered models."""
    run_as_user: Annotated[int, Meta(ge=0)] = 65532
    """User that fills claims with delivered models. 0 if volumes do not support a pod's group and so belong to root,
    like node directories."""
    node_registry: str = ""
    """``host:port`` of the registry for nodes; empty: no image volumes."""
    image: bool = False
    """Whether each model is also published as an ordinary image, which image volumes need."""
    ollama_endpoint: Https = ""
    """A mirror of Ollama's registry; empty: the public one."""

    @property
    def copies(self) -> int:
        """How often the registry stores the files of each model."""
        return 2 if self.image else 1


def deckhouse(settings: Settings) -> DeckhouseSettings:
    """Returns Deckhouse's part of the operator's settings. Raises msgspec.ValidationError for values that the
    controller rejects at startup."""
    own = msgspec.convert(settings.of("deckhouse"), DeckhouseSettings)
    return msgspec.structs.replace(
        own, namespace=own.namespace or settings.system_namespace, upload_url=own.upload_url or own.depot_url
    )
