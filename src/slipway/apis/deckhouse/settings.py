"""The operator's settings for Deckhouse."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from slipway.serving.contract.settings import Settings

KEY_FILE = "/etc/slipway-depot/hmac"
QUANTITY = r"\A([0-9]{1,18}(\.[0-9]{1,9})?(k|[KMGTPE]i?)?)?\Z"
Https = Annotated[str, Meta(pattern=r"\A(https://[^/?#@]+(/[^?#]*)?)?\Z")]


class DeckhouseSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The operator's settings for Deckhouse. :class:`slipway.serving.contract.settings.Settings` has the settings
    common to all APIs."""

    registry: str = ""
    """``host:port`` at which pods reach the registry. If it is empty, no models are published."""
    depot_url: Https = ""
    """URL at which pods and the registry reach the depot. Empty if there is no depot."""
    upload_url: Https = ""
    """URL at which users reach the depot. Empty to use ``depot_url``."""
    ca: str = ""
    """CA certificate of registry and depot in PEM format. Empty if a public CA signed their certificates."""
    key_file: str = KEY_FILE
    """Path of the file with the key that controller and depot share."""
    namespace: str = ""
    """Namespace of the registry and the depot. The Jobs and upload Secrets of ClusterModels are in this namespace.
    Empty to use the system namespace."""
    upload_seconds: Annotated[int, Meta(ge=60)] = 1800
    """Seconds that an upload may take."""
    publications_at_once: Annotated[int, Meta(ge=1)] = 4
    """Maximum number of models that are published at a time."""
    capacity_limit: Annotated[str, Meta(pattern=QUANTITY)] = ""
    """Maximum total size of all artifacts, such as ``500Gi``. Empty for no limit."""
    namespace_share: Annotated[int, Meta(ge=1, le=100)] = 90
    """Percentage of ``capacity_limit`` that the models of one namespace can use."""
    delivery: Literal["SharedPVC", "ImageVolume"] = "SharedPVC"
    """Delivery method: a claim that pods share, or an image volume per model."""
    storage_class_name: str = ""
    """StorageClass of claims with delivered models. Empty to use the cluster's default."""
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce"] = "ReadWriteMany"
    """Access mode of claims with delivered models."""
    run_as_user: Annotated[int, Meta(ge=0)] = 65532
    """UID of the Jobs that fill claims with delivered models. Use 0 for volumes that do not support a pod's group, and
    therefore belong to root."""
    node_registry: str = ""
    """``host:port`` at which nodes reach the registry. Empty if image volumes are not available."""
    image: bool = False
    """Whether each model is also published as a container image. Image volumes require one."""
    ollama_endpoint: Https = ""
    """URL of a mirror of Ollama's registry. Empty to use the public registry."""

    @property
    def copies(self) -> int:
        """Number of copies of each model's files in the registry."""
        return 2 if self.image else 1


def deckhouse(settings: Settings) -> DeckhouseSettings:
    """Return Deckhouse's part of the operator's settings, with defaults for the namespace and the upload URL. Raise
    msgspec.ValidationError for invalid values, which the controller rejects at startup."""
    own = msgspec.convert(settings.of("deckhouse"), DeckhouseSettings)
    return msgspec.structs.replace(
        own, namespace=own.namespace or settings.system_namespace, upload_url=own.upload_url or own.depot_url
    )
