"""Names, labels and annotations of Deckhouse's models, the original's where they exist. Pure."""

from __future__ import annotations

from slipway.kube.objects import Kind, Object, key, uid
from slipway.kube.values.names import with_ending
from slipway.serving.wire import publishers, repositories

GROUP = "ai.deckhouse.io"
MODEL = Kind(GROUP, "v1alpha1", "Model", "models")
CLUSTER_MODEL = Kind(GROUP, "v1alpha1", "ClusterModel", "clustermodels", namespaced=False)
CATALOG_SOURCE = Kind(GROUP, "v1alpha1", "ModelCatalogSource", "modelcatalogsources", namespaced=False)

FINALIZER = f"{GROUP}/model-cleanup"
"""Finalizer of a model while the registry may contain anything of it."""

USES_MODEL, USES_CLUSTER_MODEL = f"{GROUP}/model", f"{GROUP}/clustermodel"
"""Annotations of workloads: names of the models that they read, separated by commas."""
GATE = f"{GROUP}/model-delivery"
"""Scheduling gate of pods whose models are not available yet."""
BLOCKED_REASON, BLOCKED_MESSAGE = f"{GROUP}/model-delivery-blocked-reason", f"{GROUP}/model-delivery-blocked-message"
RESOLVED = f"{GROUP}/resolved-"
"""Prefix of the annotations of a pod template that show what was delivered."""

PUBLICATION = publishers.PUBLICATION
"""Annotation of a model: the last known state of its publication."""
UPLOADED = "slipway.inference/uploaded"
"""Annotation of a model: digest of the session's manifest, once all bytes are stored."""
UPLOAD = "slipway.inference/upload-until"
"""Annotation of a model: end of the upload session in Unix seconds."""
VANISHED = "slipway.inference/vanished"
"""Annotation of a model: digest of its artifact, if the depot found that the registry no longer has it."""
IMAGE_DIGEST = "slipway.inference/image"
"""Annotation of a model: digest of the same files as an ordinary image, if there is one."""
MODEL_LABEL = f"{GROUP}/model-name"
"""Label of the Jobs that publish or remove a model, and of their pods: the model's name, shortened to a valid value."""

PUBLISHED, IMAGE, SESSION = "published", "image", "session"
"""Tags in a model's repository."""


def repository(model: Object) -> str:
    """Returns the repository of a Model or ClusterModel."""
    place = key(model)
    return repositories.repository(place.namespace, place.name, uid(model))


def child(model: Object, suffix: str) -> str:
    """Returns the name of a child of a model: ``<model>-<suffix>``, at most 63 characters."""
    return with_ending(key(model).name, f"-{suffix}")
