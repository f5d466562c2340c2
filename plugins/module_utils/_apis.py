# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""The serving APIs as data: where each kind lives, when it is ready, when it has failed for good. Nothing here acts.

A new API is a new entry. The modules, the wait engine and the messages read everything from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.slipway.inference.plugins.module_utils._rules import AllOf, AnyOf, Condition, Field, Rule


@dataclass(frozen=True)
class Need:
    """An object of the same namespace that another cannot do without; ``path``: of the field that has its name."""

    kind: Kind
    path: str


@dataclass(frozen=True)
class Fact:
    """What else a summary shows: its name there, the path of the field, and what it is where there is none."""

    name: str
    path: str
    otherwise: Any


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of resource, and what its status means."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    # None: it is ready as soon as it is there, and never fails.
    ready: Rule | None = None
    failed: Rule | None = None
    # It is as it was asked to be, but nothing answers, and nothing is to be waited for.
    settled: Rule | None = None
    needs: tuple[Need, ...] = ()
    # List of what its status has seen of those: name, uid, generation, ready.
    seen: str = ""
    # Its controller finds the spec wrong, and does not wait for what it needs to say so.
    refused: Rule | None = None
    # Conditions that tell why it is not ready, the most telling first, each with what it is while nothing is wrong.
    telling: tuple[Condition, ...] = ()
    # Paths of what a summary shows; empty where its status has no such field.
    phase: str = "status.phase"
    url: str = "status.url"
    facts: tuple[Fact, ...] = ()
    # Label selectors, with {name} of the object, of pods that may know the cause of a failure, the likeliest first.
    pods: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """Name in RBAC and in messages, such as models.krypton.ai."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Path on the API server of an object, or of all in a namespace or in the cluster."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return root + scope + "".join(f"/{part}" for part in (self.plural, name, subresource) if part)


EVENT = Kind("", "v1", "Event", "events")
POD = Kind("", "v1", "Pod", "pods")

KRYPTON_MODEL = Kind(
    group="krypton.ai",
    version="v1alpha1",
    kind="Model",
    plural="models",
    ready=AllOf((Field("status.phase", within=("Ready",)), Condition("Progressing", "False", reasons=("Complete",)))),
    failed=AnyOf(
        (
            Field("status.phase", within=("Failed",)),
            Condition("Progressing", "False", other_than=("Complete",)),
            Condition("Accepted", "False"),
        )
    ),
    telling=(
        Condition("Accepted", "True"),
        Condition("Available", "True"),
        Condition("Progressing", "False", reasons=("Complete",)),
    ),
    pods=("krypton.ai/model={name}",),
)

# A model that nobody asks anything has no replica, and that is as it should be.
_AVAILABLE = Condition("Available", "True", excused=("ScaledToZero",))
_COMPLETE = Condition("Progressing", "False", reasons=("Complete",))
# Only models with a cache, or with adapters, have these.
_CACHE_LOADED = Condition("CacheLoaded", "True", optional=True)
_ADAPTERS_LOADED = Condition("AdaptersLoaded", "True", excused=("ScaledToZero",), optional=True)

KUBEAI_MODEL = Kind(
    group="kubeai.org",
    version="v1",
    kind="Model",
    plural="models",
    ready=AllOf((Condition("Accepted", "True"), _AVAILABLE, _COMPLETE, _CACHE_LOADED, _ADAPTERS_LOADED)),
    failed=AnyOf(
        (
            Condition("Accepted", "False"),
            Condition("Progressing", "False", other_than=("Complete",)),
            Condition("CacheLoaded", "False", other_than=("LoadingCache",)),
            Condition("AdaptersLoaded", "False", reasons=("AdapterFailed",)),
        )
    ),
    telling=(Condition("Accepted", "True"), _CACHE_LOADED, _AVAILABLE, _ADAPTERS_LOADED, _COMPLETE),
    phase="",
    url="",
    pods=(
        "app=model,model={name}",
        "batch.kubernetes.io/job-name=load-cache-{name}",
        "batch.kubernetes.io/job-name=evict-cache-{name}",
    ),
)

# Weights. They are ready when services can be started with them.
LLMKUBE_MODEL = Kind(
    group="inference.llmkube.dev",
    version="v1alpha1",
    kind="Model",
    plural="models",
    ready=Field("status.phase", within=("Ready",)),
    failed=Field("status.phase", within=("Failed",)),
    telling=(Condition("Available", "True"),),
    url="",
    pods=("app.kubernetes.io/name=model-loader,inference.llmkube.dev/model={name}",),
)

LLMKUBE_SERVICE = Kind(
    group="inference.llmkube.dev",
    version="v1alpha1",
    kind="InferenceService",
    plural="inferenceservices",
    ready=AllOf((Field("status.phase", within=("Ready",)), _COMPLETE)),
    failed=AnyOf(
        (
            Field("status.phase", within=("Failed",)),
            Condition("Progressing", "False", other_than=("Complete",)),
            Condition("Accepted", "False"),
        )
    ),
    # Without replicas because it was asked for none, or computed by a Mac outside of the cluster.
    settled=AnyOf(
        (
            AllOf(
                (
                    Field("status.phase", within=("Stopped", "Suspended")),
                    Condition("Accepted", "True"),
                    Condition("Progressing", "False", reasons=("Complete",), excused=("ModelNotReady",)),
                )
            ),
            Condition("Accepted", "False", reasons=("MetalOutOfReach",)),
        )
    ),
    refused=Condition("Accepted", "False"),
    needs=(Need(LLMKUBE_MODEL, "spec.modelRef"), Need(LLMKUBE_MODEL, "spec.vllmConfig.speculative.model")),
    seen="status.observedModels",
    telling=(Condition("Accepted", "True"), Condition("Available", "True"), _COMPLETE),
    url="status.endpoint",
    facts=(Fact("waiting_for", "status.waitingFor", ""), Fact("queue_position", "status.queuePosition", 0)),
    pods=("inference.llmkube.dev/service={name}",),
)

# Kinds that the modules `model` and `model_info` handle, by the name of their API.
MODELS: Mapping[str, Kind] = {"krypton": KRYPTON_MODEL, "kubeai": KUBEAI_MODEL, "llmkube": LLMKUBE_MODEL}
# And those of `inference_service` and `inference_service_info`.
SERVICES: Mapping[str, Kind] = {"llmkube": LLMKUBE_SERVICE}
