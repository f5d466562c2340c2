"""Resolve: the target, tokenizer and result location of a BenchmarkJob. Pure.

A benchmark can measure a service in another namespace, because any client that can reach the Service could do so.
Private information of that namespace is neither reported nor mounted. The message is identical for a missing service
and a service that is not ready, and the files of a BaseModel or a claim are not used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from urllib.parse import urlsplit

import msgspec

from slipway.apis.ome import names
from slipway.apis.ome.components import predictor
from slipway.apis.ome.components.references import BASE, base_name_of, by_base, find_model, find_weight, name_of
from slipway.apis.ome.models import folders
from slipway.apis.ome.models import volumes as model_volumes
from slipway.apis.ome.types.benchmark import BenchmarkJobSpec, Endpoint, InferenceServiceReference
from slipway.apis.ome.types.model import StorageSpec
from slipway.artifacts.locations.paths import fault_inside
from slipway.kube.caches.store import Change
from slipway.kube.objects import (
    JOB,
    PERSISTENT_VOLUME_CLAIM,
    Key,
    Object,
    annotations_of,
    as_object,
    deleting,
    generation,
    key,
)
from slipway.kube.schemas.conditions import find
from slipway.serving.containers import genai_bench, volumes
from slipway.serving.containers.genai_bench import OPENAI, Benchmark
from slipway.serving.contract.api import InvalidSpecError, Listers, Reference, Watch, World
from slipway.serving.contract.settings import Settings
from slipway.serving.contract.watches import (
    NAMESPACE,
    REFERENCES,
    by_namespace,
    by_reference,
    enqueue_nothing,
    owned_by,
    referenced_by,
)
from slipway.serving.pods.job import pods_of
from slipway.serving.pods.workload import digest
from slipway.serving.status.report import Pending
from slipway.weights.sources.credentials import (
    S3_KEYS,
    Access,
    from_google,
    from_secret,
    hub_mirror,
    mounted,
    of_operator,
)
from slipway.weights.sources.source import CLAIM

SPEC = "slipway.inference/spec"
"""Annotation of a Job with the digest of the BenchmarkJob's spec that it was created for."""
TOKENIZER = "tokenizer"
"""Key of a model's ``additionalMetadata`` with the repository of its tokenizer."""
TOKENIZER_ANNOTATION = "slipway.inference/tokenizer"
"""Annotation of a BenchmarkJob with the Hugging Face repository of the tokenizer."""
TOKEN_KEY = "HUGGINGFACE_API_KEY"  # noqa: S105 - the key of a Secret
OF_MODEL = "benchmarked-model"
"""Index of InferenceServices by the name of their model."""
RESULTS, RESULTS_VOLUME = "/results", "results"
DATASETS, DATASET_VOLUME = "/datasets", "dataset"
MODEL_VOLUME, GOOGLE_KEY = "model", "credentials.json"
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)
FOLDER = re.compile(r"[\w.-]{1,200}", re.ASCII)
IN_ORACLE = re.compile(r"oci://n/(?P<namespace>[^/]+)/b/(?P<bucket>[^/]+)(/o/(?P<prefix>.+))?")
ORACLE = {"auth": "--auth", "config_file": "--config-file", "profile": "--profile", "region": "--region"}
AMAZON = {"aws_profile": "--storage-aws-profile", "aws_region": "--storage-aws-region"}
SECRET = re.compile("secret|token|password|access_key|account_key|connection_string", re.IGNORECASE)


class BenchmarkJob(msgspec.Struct, frozen=True, kw_only=True):
    """A valid benchmark, with everything that its Job needs."""

    benchmark: Benchmark
    access: Access
    """Environment variables, mounts and volumes for the tokenizer, the dataset and the results, including those that
    the operator adds to loaders."""
    node_label: str = ""
    """Label of the nodes that have the tokenizer. Empty if the Job may run on any node."""


class BenchmarkView(msgspec.Struct, frozen=True, kw_only=True):
    """A BenchmarkJob, which may be invalid, with its Job and pods."""

    world: World
    existing_job: Object | None = None
    """The existing Job, which may have been created for an earlier spec."""
    pods: Sequence[Object] = ()
    """The Job's pods, newest first."""
    job: BenchmarkJob | None = None
    """The valid benchmark. None if the existing Job is current, or if the benchmark waits or cannot run."""
    pending: Pending | None = None
    """State of a service for which the benchmark is waiting."""
    fault: InvalidSpecError | None = None

    @property
    def is_current(self) -> bool:
        """Whether the existing Job was created for the current spec and is not being deleted. Such a Job is kept, even
        if the service or the model changes."""
        return (
            self.existing_job is not None
            and not deleting(self.existing_job)
            and annotations_of(self.existing_job).get(SPEC) == spec_digest(self.world)
        )


def watches(settings: Settings) -> tuple[Watch, ...]:
    """Return the watches for benchmarks: their Jobs and claims, the service that they measure, its model, and nodes."""
    kind, service, indexes = names.BENCHMARK_JOB, names.INFERENCE_SERVICE, folders.indexes(settings)
    return (
        *owned_by(kind, JOB),
        Watch(
            kind=kind, enqueue=enqueue_nothing, indexes={REFERENCES: by_reference(references), NAMESPACE: by_namespace}
        ),
        Watch(kind=PERSISTENT_VOLUME_CLAIM, enqueue=partial(model_volumes.enqueue_users_of_claim, kind=kind)),
        Watch(kind=service, enqueue=_measuring, indexes={OF_MODEL: _by_model}),
        Watch(kind=names.BASE_MODEL, enqueue=_of_changed_model, indexes=indexes),
        Watch(kind=names.CLUSTER_BASE_MODEL, enqueue=_of_changed_model, indexes=indexes),
        Watch(kind=names.FINE_TUNED_WEIGHT, enqueue=_of_changed_model, indexes={BASE: by_base, **indexes}),
        folders.NODES,
    )


_measuring = referenced_by(names.BENCHMARK_JOB, names.INFERENCE_SERVICE)


def _of_changed_model(change: Change, listers: Listers) -> Iterable[Key]:
    """Yield the benchmarks of the services that name a changed model or FineTunedWeight, or a FineTunedWeight of the
    changed model. Changes outside the spec are ignored."""
    if change.old and change.new and generation(change.old) == generation(change.new):
        return
    namespace, name = change.key
    weights = listers.list(names.FINE_TUNED_WEIGHT, BASE, name)
    for one in dict.fromkeys((name, *(key(weight).name for weight in weights))):
        for service in listers.list(names.INFERENCE_SERVICE, OF_MODEL, one):
            if namespace in ("", key(service).namespace):
                yield from _measuring(Change(service, service), listers)


def _by_model(service: Object) -> Iterable[str]:
    """Return the values of a service in the index :data:`OF_MODEL`."""
    name = name_of(_named_model(service))
    return (name,) if name else ()


def resolve(world: World) -> BenchmarkView:
    """Return the view of a benchmark. The function does not raise InvalidSpecError: if the benchmark cannot run,
    ``view.fault`` is the error."""
    job = world.child(JOB, key(world.resource).name)
    view = BenchmarkView(world=world, existing_job=job, pods=pods_of(job, world.pods))
    if view.is_current:
        return view
    try:
        outcome = _resolve_job(world)
    except InvalidSpecError as error:
        return msgspec.structs.replace(view, fault=error)
    return msgspec.structs.replace(
        view, **({"job": outcome} if isinstance(outcome, BenchmarkJob) else {"pending": outcome})
    )


def references(resource: Object) -> tuple[Reference, ...]:
    """Return a tuple with the service that a BenchmarkJob measures, or an empty tuple if it names none."""
    named = (resource["spec"].get("endpoint") or {}).get("inferenceService") or {}
    namespace, name = named.get("namespace"), named.get("name")
    return (Reference(names.INFERENCE_SERVICE, namespace, name),) if namespace and name else ()


def spec_digest(world: World) -> str:
    return digest(world.resource["spec"])


def _resolve_job(world: World) -> BenchmarkJob | Pending:
    """Return the benchmark, or the state for which it is waiting. Raise InvalidSpecError if the benchmark cannot
    run."""
    try:
        spec = msgspec.convert(world.resource["spec"], BenchmarkJobSpec)
    except msgspec.ValidationError as error:
        raise InvalidSpecError("InvalidSpec", str(error)) from None
    service, endpoint = spec.endpoint.inference_service, spec.endpoint.endpoint
    if (service is None) == (endpoint is None):
        raise _invalid("spec.endpoint needs exactly one of inferenceService and endpoint")
    if min(spec.max_time_per_iteration, spec.max_requests_per_iteration, *spec.num_concurrency) < 1:
        raise _invalid("maxTimePerIteration, maxRequestsPerIteration and numConcurrency must be positive")
    subject = _of_service(world, service) if service else _of_endpoint(world, endpoint)
    if isinstance(subject, Pending):
        return subject
    target, access, node_label = subject
    output, results = _output(spec.output_location)
    dataset, data = _dataset(spec.dataset)
    if spec.result_folder_name and not (
        FOLDER.fullmatch(spec.result_folder_name) and spec.result_folder_name.strip(".")
    ):
        raise _invalid(f"resultFolderName {spec.result_folder_name[:60]!r} is not a directory name")
    metadata = spec.service_metadata
    server = {"engine": metadata.engine, "gpu-type": metadata.gpu_type, "version": metadata.version} if metadata else {}
    benchmark = Benchmark(
        **target,
        task=spec.task,
        minutes=spec.max_time_per_iteration,
        requests=spec.max_requests_per_iteration,
        scenarios=spec.traffic_scenarios,
        concurrency=spec.num_concurrency,
        folder=spec.result_folder_name or "",
        params=spec.additional_request_params,
        dataset=dataset,
        server=server | ({"gpu-count": str(metadata.gpu_count)} if metadata else {}),
        output=output,
    )
    wrong = genai_bench.fault(benchmark)
    if wrong:
        raise _invalid(wrong)
    token = spec.hugging_face_secret_reference
    hub = Access(env=from_secret(token.name, {"HF_TOKEN": TOKEN_KEY})) if token else Access()
    own = of_operator(world.settings.loader) + Access(env=hub_mirror(world.settings.hugging_face_endpoint))
    return BenchmarkJob(benchmark=benchmark, access=own + hub + access + data + results, node_label=node_label)


Target = tuple[Mapping[str, str], Access, str]
"""What to measure, as a tuple: fields of a Benchmark, access that its tokenizer needs, and label of the nodes that have
the tokenizer. The label is empty if the tokenizer is not on nodes."""


def _of_service(world: World, named: InferenceServiceReference) -> Target | Pending:
    """Return the target for an InferenceService, or a Pending if the service is not ready. Raise InvalidSpecError if
    its tokenizer is unknown."""
    service = world.get(Reference(names.INFERENCE_SERVICE, named.namespace, named.name))
    own = named.namespace == key(world.resource).namespace
    url = urlsplit(str(((service or {}).get("status") or {}).get("url") or ""))
    ready = find(service, "Ready") if service else None
    if service is None or not url.netloc or (ready or {}).get("status") != "True":
        why = (ready or {}).get("message", "") if own else ""
        missing = "The service does not exist." if own and service is None else why
        text = f"The InferenceService {named.namespace}/{named.name} is not ready yet. {missing}"
        return Pending("WaitingForService", text.strip())
    tokenizer, access, node_label = _tokenizer(world, service)
    target = {"backend": OPENAI, "url": f"{url.scheme}://{url.netloc}", "model": named.name, "tokenizer": tokenizer}
    return target, access, node_label


def _of_endpoint(world: World, endpoint: Endpoint | None) -> Target:
    """Return the target for an API that does not belong to an InferenceService. Raise InvalidSpecError if the endpoint
    is invalid or its tokenizer is unknown."""
    assert endpoint is not None  # noqa: S101 - one of the two is set
    parts = urlsplit(endpoint.url)
    if not parts.hostname or parts.username or parts.password or not endpoint.url.isprintable():
        raise _invalid("endpoint.url must be a URL without credentials. Set MODEL_API_KEY in podOverride")
    if not endpoint.model_name:
        raise _invalid("endpoint.modelName is required: the model name in the requests")
    tokenizer = annotations_of(world.resource).get(TOKENIZER_ANNOTATION) or endpoint.model_name
    if not REPOSITORY.fullmatch(tokenizer):
        text = f"there is no tokenizer for {endpoint.model_name[:80]!r}: set a repository of the hub in the annotation"
        raise InvalidSpecError("TokenizerUnknown", f"{text[:1].upper()}{text[1:]} {TOKENIZER_ANNOTATION}.")
    url = endpoint.url.rstrip("/").removesuffix("/v1")
    target = {"backend": endpoint.api_format, "url": url, "model": endpoint.model_name, "tokenizer": tokenizer}
    return target, Access(), ""


def _tokenizer(world: World, service: Object) -> tuple[str, Access, str]:
    """Return the tokenizer of a service's model as a repository or a path, the access that it needs, and the label of
    the nodes that have it. Raise InvalidSpecError if the tokenizer is unknown."""
    model = _model(world, service)
    metadata = ((model or {}).get("spec") or {}).get("additionalMetadata") or {}
    tokenizer = str(annotations_of(world.resource).get(TOKENIZER_ANNOTATION) or metadata.get(TOKENIZER) or "")
    if tokenizer and not REPOSITORY.fullmatch(tokenizer):
        raise InvalidSpecError("TokenizerUnknown", f"The tokenizer {tokenizer[:80]!r} is not a repository of the hub.")
    if tokenizer:
        return tokenizer, Access(), ""
    text = "Set additionalMetadata.tokenizer of the model to a repository of the hub."
    if model is None:
        raise InvalidSpecError("TokenizerUnknown", f"The service's model is unknown. {text}")
    own, (namespace, name) = key(world.resource).namespace, key(model)
    mount = folders.resolve_mount(world, model) if namespace in ("", own) else None
    if mount is None or not mount.path or own != (mount.claim_namespace or own):
        raise InvalidSpecError("TokenizerUnknown", f"This job cannot read the files of the model {name}. {text}")
    if mount.claim:
        volume = volumes.claim(MODEL_VOLUME, mount.claim, read_only=True)
    elif mount.is_deleted:
        raise InvalidSpecError("TokenizerUnknown", f"The model {name} is being deleted. {text}")
    else:
        volume = volumes.claim(MODEL_VOLUME, model_volumes.name_for(mount, world.resource), read_only=True)
    return mount.path, mounted(volume, mount.path, sub_path=mount.sub_path, read_only=True), mount.node_label


def _model(world: World, service: Object) -> Object | None:
    """Return the base model that a service runs. Return None if the service names no model, or the model does not
    exist."""
    named = _named_model(service)
    name = name_of(named)
    if named.get("kind") == names.FINE_TUNED_WEIGHT.kind:
        weight = find_weight(world, name)
        name = base_name_of(weight) if weight else ""
    return find_model(world, key(service).namespace, name) if name else None


def _named_model(service: Object) -> Object:
    """Return the reference to the model in a service's spec, or an empty object if the service names none."""
    return as_object(as_object(predictor.migrated(service).get("spec")).get("model"))


def _output(location: StorageSpec) -> tuple[tuple[str, ...], Access]:
    """Return the genai-bench arguments and the access for the location of the results. A volume for the results is
    always mounted. Raise InvalidSpecError for an unsupported location."""
    scheme, _separator, rest = location.storage_uri.partition("://")
    secret = next((name for name in location.parameters if SECRET.search(name)), "")
    if secret:
        text = f"outputLocation.parameters.{secret[:40]} would be visible to everyone"
        raise _invalid(f"{text}: store it in a Secret, and set outputLocation.key")
    base, bucket = ("--experiment-base-dir", RESULTS), rest.partition("/")
    scratch = mounted(volumes.scratch(RESULTS_VOLUME), RESULTS)
    if scheme == "pvc":
        name, path = _on_claim(rest, "outputLocation")
        return base, mounted(volumes.claim(RESULTS_VOLUME, name), RESULTS, sub_path=path)
    if scheme == "s3" and bucket[0]:
        keys = (*S3_KEYS, "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL")
        opened = Access(env=from_secret(location.key or "", {name: name for name in keys}))
        return (*base, *_upload("aws", bucket[0], bucket[2]), *_options(location, AMAZON)), scratch + opened
    if scheme == "gs" and bucket[0]:
        project = _options(location, {"gcp_project_id": "--storage-gcp-project-id"})
        opened = from_google(location.key or "", location.parameters.get("secretKey", GOOGLE_KEY))
        return (*base, *_upload("gcp", bucket[0], bucket[2]), *project), scratch + opened
    oracle = IN_ORACLE.fullmatch(location.storage_uri)
    if oracle:
        prefix = oracle["prefix"] or ""
        into = ("--namespace", oracle["namespace"], *_upload("oci", oracle["bucket"], prefix))
        return (*base, *into, *_options(location, ORACLE)), scratch
    text = "Use pvc://claim/path, s3://bucket/prefix, gs://bucket/prefix or oci://n/namespace/b/bucket/o/prefix."
    raise InvalidSpecError("OutputNotServed", text)


def _upload(provider: str, bucket: str, prefix: str) -> tuple[str, ...]:
    into = ("--upload-results", "--storage-provider", provider, "--storage-bucket", bucket)
    return (*into, "--storage-prefix", prefix) if prefix else into


def _options(location: StorageSpec, options: Mapping[str, str]) -> tuple[str, ...]:
    parameters = location.parameters
    return tuple(
        word for name, option in options.items() if parameters.get(name) for word in (option, parameters[name])
    )


def _dataset(location: StorageSpec | None) -> tuple[str, Access]:
    """Return the path or repository of the dataset and the access that it needs. The path is empty without a dataset.
    Raise InvalidSpecError for an unsupported source."""
    if location is None:
        return "", Access()
    scheme, _separator, rest = location.storage_uri.partition("://")
    if scheme == "hf" and REPOSITORY.fullmatch(rest.removeprefix("datasets/")):
        return rest.removeprefix("datasets/"), Access()
    if scheme == "pvc":
        name, path = _on_claim(rest, "dataset")
        volume = volumes.claim(DATASET_VOLUME, name, read_only=True)
        return f"{DATASETS}/{path}".rstrip("/"), mounted(volume, DATASETS, read_only=True)
    raise InvalidSpecError("SourceNotServed", "Datasets can be read from hf://owner/dataset or pvc://claim/file.")


def _on_claim(rest: str, field: str) -> tuple[str, str]:
    """Return the name of a claim and the path inside the claim, from ``rest``, such as ``claim/path``. ``field``: the
    field of the spec for messages. Raise InvalidSpecError if ``rest`` has another form."""
    name, _slash, path = rest.partition("/")
    path = path.rstrip("/")
    if not CLAIM.fullmatch(name) or (path and fault_inside(path)):
        raise _invalid(f"{field} does not name a claim in this namespace: write pvc://claim/path")
    return name, path


def _invalid(message: str) -> InvalidSpecError:
    return InvalidSpecError("InvalidSpec", f"{message[:1].upper()}{message[1:]}.")
