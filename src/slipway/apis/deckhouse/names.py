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
"""Kept on a model while the registry may have something of it."""

USES_MODEL, USES_CLUSTER_MODEL = f"{GROUP}/model", f"{GROUP}/clustermodel"
"""Annotations of workloads: the models that they read, by name, apart by commas."""
GATE = f"{GROUP}/model-delivery"
"""Scheduling gate of pods whose models are not there yet."""
BLOCKED_REASON, BLOCKED_MESSAGE = f"{GROUP}/model-delivery-blocked-reason", f"{GROUP}/model-delivery-blocked-message"
RESOLVED = f"{GROUP}/resolved-"
"""Prefix of the annotations of a pod template that say what was delivered."""

PUBLICATION = publishers.PUBLICATION
"""Annotation of a model: where a publication was when it was heard of last."""
UPLOADED = "slipway.inference/uploaded"
"""Annotation of a model: digest of the session's manifest, once all bytes are there."""
UPLOAD = "slipway.inference/upload-until"
"""Annotation of a model: until when the session is open, in Unix seconds."""
VANISHED = "slipway.inference/vanished"
"""Annotation of a model: digest of its artifact, if the depot found that the registry does not have it any more."""
IMAGE_DIGEST = "slipway.inference/image"
"""Annotation of a model: digest of the same files as an ordinary image, where there is one."""
MODEL_LABEL = f"{GROUP}/model-name"
"""Of the Jobs that publish a model or take it out of the registry, and of their pods: its name, fitted."""

PUBLISHED, IMAGE, SESSION = "published", "image", "session"
"""Tags in a model's repository."""


def repository(model: Object) -> str:
    """Of a Model or ClusterModel."""
    place = key(model)
    return repositories.repository(place.namespace, place.name, uid(model))


def child(model: Object, suffix: str) -> str:
    """Name of an object of a model: ``<model>-<suffix>``, at most 63 characters."""
    return with_ending(key(model).name, f"-{suffix}")
