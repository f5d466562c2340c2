"""Names, labels and annotations of Deckhouse models, with the original Deckhouse values if they exist. Pure."""

from __future__ import annotations

from slipway.kube.objects import Kind, Object, key, uid
from slipway.kube.values.names import with_ending
from slipway.serving.wire import publishers, repositories

GROUP = "ai.deckhouse.io"
MODEL = Kind(GROUP, "v1alpha1", "Model", "models")
CLUSTER_MODEL = Kind(GROUP, "v1alpha1", "ClusterModel", "clustermodels", namespaced=False)
CATALOG_SOURCE = Kind(GROUP, "v1alpha1", "ModelCatalogSource", "modelcatalogsources", namespaced=False)

FINALIZER = f"{GROUP}/model-cleanup"
"""Finalizer of a model. It delays the deletion until no workload reads the model, and its data is removed from the
registry or a time limit is reached."""

USES_MODEL, USES_CLUSTER_MODEL = f"{GROUP}/model", f"{GROUP}/clustermodel"
"""Annotations of workloads with the names of the Models and ClusterModels that they read, separated by commas."""
GATE = f"{GROUP}/model-delivery"
"""Scheduling gate of pods whose models are not available yet."""
BLOCKED_REASON, BLOCKED_MESSAGE = f"{GROUP}/model-delivery-blocked-reason", f"{GROUP}/model-delivery-blocked-message"
RESOLVED = f"{GROUP}/resolved-"
"""Prefix of the pod template annotations that describe the delivered models."""

PUBLICATION = publishers.PUBLICATION
"""Annotation of a model with the last known state of its publication."""
UPLOADED = "slipway.inference/uploaded"
"""Annotation of a model with the digest of the upload session's manifest. It is set when all bytes are stored."""
UPLOAD = "slipway.inference/upload-until"
"""Annotation of a model with the end of its upload session in Unix seconds."""
VANISHED = "slipway.inference/vanished"
"""Annotation of a model with the digest of its artifact. The depot sets it if the registry no longer has the
artifact."""
IMAGE_DIGEST = "slipway.inference/image"
"""Annotation of a model with the digest of a container image that contains the artifact's files, if there is one."""
MODEL_LABEL = f"{GROUP}/model-name"
"""Label of the Jobs that publish or remove a model, and of their pods. The value is the model's name, shortened to a
valid label value."""


def repository(model: Object) -> str:
    """Return the registry repository of a Model or ClusterModel."""
    place = key(model)
    return repositories.repository(place.namespace, place.name, uid(model))


def child(model: Object, suffix: str) -> str:
    """Return the name of a model's child object: ``<model>-<suffix>``. If the model's name contains dots, or the result
    would be longer than 63 characters, the model's name is shortened, its dots become dashes, and a digest is added."""
    return with_ending(key(model).name, f"-{suffix}")
