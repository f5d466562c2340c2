"""Description of Deckhouse for installers and clients: resources, permissions and metrics."""

from __future__ import annotations

from slipway.apis.deckhouse import names, readiness
from slipway.apis.deckhouse.metrics import samples
from slipway.apis.deckhouse.settings import DeckhouseSettings
from slipway.apis.description import GET, MANAGE, Description, Fact, Grant, Grants, Resource
from slipway.kube.objects import JOB, NAMESPACE, NODE, PERSISTENT_VOLUME_CLAIM, POD, SECRET
from slipway.serving.contract.delivery import WORKLOADS

MODELS = tuple(
    Resource(
        kind=kind,
        module="model",
        readiness=readiness.MODEL,
        url="",
        pods=(f"{names.MODEL_LABEL}={{name}}",),
        facts=(
            Fact("progress", "status.progress", ""),
            Fact("digest", "status.artifact.digest", ""),
            Fact("upload_secret", "status.upload.secretName", ""),
            Fact("upload_namespace", "status.upload.secretNamespace", ""),
        ),
    )
    for kind in (names.MODEL, names.CLUSTER_MODEL)
)
SOURCES = Resource(kind=names.CATALOG_SOURCE, readiness=readiness.CATALOG_SOURCE, phase="", url="")
WRITE = ("create", "update")
"""Verbs for objects that the controller writes and never reads. ``patch`` is not included, because the response to an
invalid patch contains the object."""

DESCRIPTION = Description(
    name="deckhouse",
    resources=(*MODELS, SOURCES),
    grants=Grants(
        work=(
            Grant(JOB, MANAGE),  # publications; deliveries
            Grant(SECRET, WRITE),  # upload credentials; registry credentials for image volumes
            *(Grant(kind, (*GET, "patch")) for kind in WORKLOADS),  # workloads that get models
            Grant(PERSISTENT_VOLUME_CLAIM, MANAGE),  # claims with delivered models
            Grant(POD, ("delete",)),  # pods that wait behind a gate that is no longer needed
        ),
        cluster=(
            Grant(NODE, ("list", "watch")),  # to check that they can mount images
            Grant(NAMESPACE, ("list", "watch")),  # uids of the namespaces whose pods may pull
        ),
        own=(Grant(JOB, MANAGE), Grant(SECRET, WRITE)),  # the same for cluster-scoped models
    ),
    settings=DeckhouseSettings,
    samples=samples,
)
