"""What installers and clients need to know of Deckhouse's models."""

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
"""Verbs on what is written and never read. ``patch`` reads: the answer to a faulty patch shows the object."""

DESCRIPTION = Description(
    name="deckhouse",
    resources=(*MODELS, SOURCES),
    grants=Grants(
        work=(
            Grant(JOB, MANAGE),  # publications; deliveries
            Grant(SECRET, WRITE),  # where to upload; what opens the registry for image volumes
            *(Grant(kind, (*GET, "patch")) for kind in WORKLOADS),  # which get models
            Grant(PERSISTENT_VOLUME_CLAIM, MANAGE),  # with models that were delivered
            Grant(POD, ("delete",)),  # that wait behind a gate which is open now
        ),
        cluster=(
            Grant(NODE, ("list", "watch")),  # whether they mount images
            Grant(NAMESPACE, ("list", "watch")),  # whose pods may pull: their uids
        ),
        own=(Grant(JOB, MANAGE), Grant(SECRET, WRITE)),  # the same of models of the cluster
    ),
    settings=DeckhouseSettings,
    samples=samples,
)
