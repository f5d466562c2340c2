"""BenchmarkJob: a measurement of a service. The CRD is generated from this module."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from slipway.apis.ome import names
from slipway.apis.ome.types.model import Conditions, Number64, StorageSpec
from slipway.kube.objects import Object
from slipway.kube.schemas.core import inlined
from slipway.kube.schemas.crd import Column, CustomResource, Rule

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
    """A Secret in the BenchmarkJob's namespace."""

    name: str
    """Name of the Secret. Its key HUGGINGFACE_API_KEY contains the token."""


class InferenceServiceReference(msgspec.Struct, frozen=True, kw_only=True):
    """An InferenceService to measure."""

    name: str
    """Name of the InferenceService."""
    namespace: str
    """Namespace of the InferenceService."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An API that does not belong to an InferenceService."""

    url: Annotated[str, Meta(pattern="^(http|https)://")]
    """URL of the API."""
    api_format: Literal["openai", "oci-cohere", "cohere"]
    """Protocol of the API."""
    model_name: str = ""
    """Model name in the requests."""


class EndpointSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """API to measure: exactly one of inferenceService and endpoint."""

    inference_service: InferenceServiceReference | None = None
    """InferenceService to measure. The benchmark starts when the service is ready."""
    endpoint: Endpoint | None = None
    """API to measure, if it is not an InferenceService."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.inferenceService) != has(self.endpoint)",
            "exactly one of inferenceService and endpoint must be set.",
        ),
    )


class ServiceMetadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Additional facts that are recorded with the results."""

    engine: Literal["vLLM", "SGLang", "TGI"]
    """Engine of the measured API."""
    version: str
    """Version of the engine."""
    gpu_type: Literal["H100", "A100", "MI300", "A10"]
    """Type of the GPUs."""
    gpu_count: int
    """Number of GPUs."""


class BenchmarkJobSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """API to measure, load, and location of the results."""

    endpoint: EndpointSpec
    """API to measure: exactly one of inferenceService and endpoint."""
    task: Task
    """Type of the requests."""
    max_time_per_iteration: int
    """Maximum duration of one run in minutes. There is one run for each combination of traffic scenario and
    concurrency."""
    max_requests_per_iteration: int
    """Maximum number of requests in one run."""
    output_location: StorageSpec
    """Location for the results: a PVC or a bucket."""
    traffic_scenarios: Annotated[tuple[str, ...], Meta(extra_json_schema=SET)] = ()
    """Lengths of prompts and answers in tokens, such as D(100,1000). Empty means the default of genai-bench."""
    num_concurrency: Annotated[tuple[int, ...], Meta(extra_json_schema=SET)] = ()
    """Numbers of concurrent requests to measure, such as 1 and 8. Empty means the default of genai-bench."""
    additional_request_params: dict[str, str] = {}
    """Additional fields of each request."""
    dataset: StorageSpec | None = None
    """Source of the prompts, for tasks that need one: hf://<owner>/<dataset> or pvc://<claim>/<file>."""
    result_folder_name: str | None = None
    """Name of the directory for the results. Empty means the default of genai-bench."""
    hugging_face_secret_reference: HuggingFaceSecretReference | None = None
    """Secret with a token for tokenizers from the Hugging Face Hub."""
    service_metadata: ServiceMetadata | None = None
    """Additional facts that are recorded with the results."""
    pod_override: PodOverride | None = None
    """Changes to the job's pod and its main container."""


class BenchmarkJobStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Observed state of the BenchmarkJob."""

    state: Literal["Pending", "Running", "Completed", "Failed"]
    """Completed means that requests were answered and none failed. Failed means that the job or a request failed, or
    that no request was answered."""
    start_time: Time | UnsetType = UNSET
    """Time when the job started."""
    completion_time: Time | UnsetType = UNSET
    """Time when the job succeeded or failed."""
    last_reconcile_time: Time | UnsetType = UNSET
    """Time of the last change of state: completionTime, or startTime while the job is running."""
    failure_message: str | UnsetType = UNSET
    """Reason why the benchmark failed."""
    details: str | UnsetType = UNSET
    """Summary of the results: throughput and time to first token of each run. Long summaries are truncated."""
    observed_generation: Number64 | UnsetType = UNSET
    """The spec generation that this status describes."""
    conditions: Conditions | UnsetType = UNSET
    """Conditions Accepted, Available and Progressing, and the summary conditions Ready, Reconciling and Stalled."""


BENCHMARK_JOB = CustomResource(
    kind=names.BENCHMARK_JOB,
    spec=BenchmarkJobSpec,
    status=BenchmarkJobStatus,
    description="A single measurement of an API.",
    columns=(
        Column("Age", "date", ".metadata.creationTimestamp"),
        Column("Status", "string", ".status.state"),
    ),
)
