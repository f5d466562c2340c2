"""BenchmarkJob: how fast a service is. Its definition is made from this module."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from slipway.apis.ome import names
from slipway.apis.ome.model_types import Conditions, Number64, StorageSpec
from slipway.kube.core import inlined
from slipway.kube.crd import Column, CustomResource, Rule
from slipway.kube.objects import Object

SET: Object = {"x-kubernetes-list-type": "set"}
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
FIELDS = {
    "Container": ("image", "env", "envFrom", "volumeMounts", "resources"),
    "PodSpec": ("tolerations", "nodeSelector", "affinity", "volumes"),
}
PodOverride = Annotated[
    Object,
    Meta(
        extra={
            "schema": {
                "type": "object",
                "properties": {name: inlined(part)["properties"][name] for part in FIELDS for name in FIELDS[part]},
            }
        }
    ),
]
Task = Literal["text-to-text", "image-to-text", "text-to-embeddings", "image-to-embeddings"]


class HuggingFaceSecretReference(msgspec.Struct, frozen=True, kw_only=True):
    """Names a Secret of the job's namespace."""

    name: str
    """Name of the Secret, whose key HUGGINGFACE_API_KEY has the token."""


class InferenceServiceReference(msgspec.Struct, frozen=True, kw_only=True):
    """Names an InferenceService."""

    name: str
    """Its name."""
    namespace: str
    """Its namespace."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An API that is none of an InferenceService."""

    url: Annotated[str, Meta(pattern="^(http|https)://")]
    """URL of the API."""
    api_format: Literal["openai", "oci-cohere", "cohere"]
    """Protocol of the API."""
    model_name: str = ""
    """The model that requests name."""


class EndpointSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is measured."""

    inference_service: InferenceServiceReference | None = None
    """A service. The job waits until it answers."""
    endpoint: Endpoint | None = None
    """Any other API."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.inferenceService) != has(self.endpoint)",
            "exactly one of inferenceService and endpoint is needed.",
        ),
    )


class ServiceMetadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is written beside the results."""

    engine: Literal["vLLM", "SGLang", "TGI"]
    """Program that is measured."""
    version: str
    """Version of the program."""
    gpu_type: Literal["H100", "A100", "MI300", "A10"]
    """GPUs that it computes on."""
    gpu_count: int
    """Number of them."""


class BenchmarkJobSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is measured, how, and where the results go."""

    endpoint: EndpointSpec
    """What is measured."""
    task: Task
    """Kind of the requests."""
    max_time_per_iteration: int
    """Longest time of one run, in minutes. There is a run for each scenario and number of requests at a time."""
    max_requests_per_iteration: int
    """Most requests of one run."""
    output_location: StorageSpec
    """Where the results go: a claim or a bucket."""
    traffic_scenarios: Annotated[tuple[str, ...], Meta(extra_json_schema=SET)] = ()
    """Lengths of prompts and answers, such as D(100,1000). Absent: genai-bench's own."""
    num_concurrency: Annotated[tuple[int, ...], Meta(extra_json_schema=SET)] = ()
    """Numbers of requests at a time. Absent: genai-bench's own."""
    additional_request_params: dict[str, str] = {}
    """Further fields of each request."""
    dataset: StorageSpec | None = None
    """Where prompts are taken from, for tasks that need them."""
    result_folder_name: str | None = None
    """Folder of the results. Absent: genai-bench's own name."""
    hugging_face_secret_reference: HuggingFaceSecretReference | None = None
    """Secret with a token for tokenizers of the hub."""
    service_metadata: ServiceMetadata | None = None
    """What is written beside the results."""
    pod_override: PodOverride | None = None
    """What of the job's pod is otherwise."""


class BenchmarkJobStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How far it is, and what came out."""

    state: Literal["Pending", "Running", "Completed", "Failed"]
    """Completed: requests were answered, and none failed."""
    start_time: Time | UnsetType = UNSET
    """When the job began."""
    completion_time: Time | UnsetType = UNSET
    """When the job ended, well or not."""
    last_reconcile_time: Time | UnsetType = UNSET
    """When this status last changed."""
    failure_message: str | UnsetType = UNSET
    """Why it failed."""
    details: str | UnsetType = UNSET
    """What came out, as much as there is room for: throughput and time to the first token of each run."""
    observed_generation: Number64 | UnsetType = UNSET
    """Generation of the spec that this status speaks of."""
    conditions: Conditions | UnsetType = UNSET
    """Accepted, Available and Progressing, each with a reason and a message."""


BENCHMARK_JOB = CustomResource(
    kind=names.BENCHMARK_JOB,
    spec=BenchmarkJobSpec,
    status=BenchmarkJobStatus,
    description="Measures a service, once.",
    columns=(
        Column("Age", "date", ".metadata.creationTimestamp"),
        Column("Status", "string", ".status.state"),
    ),
)
