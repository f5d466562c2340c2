"""The objects and the status of a BenchmarkJob."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from slipway.apis.ome import names
from slipway.apis.ome.api import BENCHMARKS
from slipway.apis.ome.benchmarks.job import SUMMARY_SECONDS
from slipway.apis.ome.benchmarks.resolve import SPEC, TOKENIZER_ANNOTATION
from slipway.apis.ome.models.storage import use_of
from slipway.apis.ome.models.volumes import claim_name
from slipway.artifacts.documents.benchmark import Run, Summary, encode_summary
from slipway.kube.caches.store import Change
from slipway.kube.objects import JOB, Key, Kind, Object
from slipway.kube.values.times import unix_time
from slipway.serving.containers.freedoms import NO_LABELS
from slipway.serving.contract.api import USES, InvalidSpecError, Rejection, World
from slipway.serving.contract.authors import build_allowed_plan as judged
from slipway.serving.contract.settings import Loader, Settings
from tests import worlds
from tests.tables import each
from tests.worlds import at

NOW = unix_time("2026-11-22T10:00:00Z")
SETTINGS = Settings(loader_image="slipway:1", system_namespace="system")
MODEL: Object = {
    "kind": "ClusterBaseModel",
    "metadata": {"name": "tiny", "uid": "u-tiny"},
    "spec": {"storage": {"storageUri": "hf://acme/tiny", "path": "/raid/models/acme/tiny"}},
}
WITH_TOKENIZER = {**MODEL, "spec": {**MODEL["spec"], "additionalMetadata": {"tokenizer": "acme/tokenizer"}}}
SERVICE: Object = {
    "kind": "InferenceService",
    "metadata": {"name": "chat", "namespace": "models"},
    "spec": {"model": {"name": "tiny"}},
    "status": {
        "url": "http://chat.models.svc.cluster.local:8080/v1",
        "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "It answers."}],
    },
}
OF_SERVICE: Object = {"inferenceService": {"name": "chat", "namespace": "models"}}
DIRECT: Object = {"endpoint": {"url": "https://api.example/v1", "apiFormat": "openai", "modelName": "acme/large"}}


def resource(endpoint: Object = OF_SERVICE, **fields: Any) -> Object:
    metadata = {"name": "speed", "namespace": "models", "uid": "u1", "generation": 1}
    spec = {
        "endpoint": endpoint,
        "task": "text-to-text",
        "maxTimePerIteration": 15,
        "maxRequestsPerIteration": 300,
        "outputLocation": {"storageUri": "pvc://results/monday"},
    }
    return {"kind": "BenchmarkJob", "metadata": metadata, "spec": {**spec, **fields}}


def world(*others: Object, job: Object | None = None, settings: Settings = SETTINGS, **given: Any) -> World:
    """``job``: the BenchmarkJob, the usual one where none is given."""
    given = {"children": {}, "pods": [], "routed": [], "now": NOW, **given}
    listers = worlds.known_world(BENCHMARKS, settings, others=others or (SERVICE, WITH_TOKENIZER))
    return World(resource=job or resource(), settings=settings, listers=listers, **given)


def planned_job(planned: World) -> Object:
    (job,) = (one for one in worlds.plan(BENCHMARKS, planned).children if one["kind"] == "Job")
    return job


def claims_of(planned: World) -> list[str]:
    return [one["metadata"]["name"] for one in worlds.plan(BENCHMARKS, planned).shared]


def pod_of(planned: World) -> Object:
    pod_spec: Object = planned_job(planned)["spec"]["template"]["spec"]
    return pod_spec


def tool(planned: World) -> Object:
    (container,) = pod_of(planned)["containers"]
    return dict(container)


def option(planned: World, name: str) -> str:
    words = tool(planned)["args"]
    return str(words[words.index(name) + 1])


def refusal(planned: World) -> tuple[str, str]:
    with pytest.raises(InvalidSpecError) as refused:
        worlds.plan(BENCHMARKS, planned)
    return refused.value.reason, refused.value.message


def status(planned: World, rejection: Rejection | None = None) -> Object:
    return worlds.status(BENCHMARKS, planned, rejection).status


# ---- what is measured ------------------------------------------------------------------------------------------------


def test_a_service_is_asked_at_its_own_address_under_its_own_name() -> None:
    """Not under a name that runtimes give to every model: each request would be answered with 404."""
    planned = world()
    assert option(planned, "--api-base") == "http://chat.models.svc.cluster.local:8080"
    assert option(planned, "--api-model-name") == "chat"


def test_a_benchmark_waits_for_its_service() -> None:
    waiting = world(MODEL)
    assert worlds.plan(BENCHMARKS, waiting).children == ()
    benchmark_status = status(waiting)
    assert benchmark_status["state"] == "Pending"
    assert {one["type"]: one["reason"] for one in benchmark_status["conditions"]}["Progressing"] == "WaitingForService"
    unready = {**SERVICE["status"], "conditions": [{"type": "Ready", "status": "False", "message": "No node."}]}
    waiting = world({**SERVICE, "status": unready})
    assert worlds.plan(BENCHMARKS, waiting).children == ()
    assert "No node." in status(waiting)["conditions"][1]["message"]


def test_another_namespaces_service_is_only_reported_as_not_ready() -> None:
    job = resource({"inferenceService": {"name": "chat", "namespace": "theirs"}})
    secret = {"type": "Ready", "status": "False", "message": "Its log says: our plans"}
    theirs = {**SERVICE, "metadata": {"name": "chat", "namespace": "theirs"}, "status": {"conditions": [secret]}}
    assert status(world(theirs, job=job)) == status(world(MODEL, job=job))


def test_the_namespace_of_a_service_may_be_another_one() -> None:
    job = resource({"inferenceService": {"name": "chat", "namespace": "theirs"}})
    theirs = {**SERVICE, "metadata": {"name": "chat", "namespace": "theirs"}}
    assert option(world(theirs, WITH_TOKENIZER, job=job), "--model-tokenizer") == "acme/tokenizer"


def test_an_address_is_measured_without_any_service() -> None:
    direct = world(job=resource(DIRECT))
    assert option(direct, "--api-base") == "https://api.example"
    assert option(direct, "--api-model-name") == "acme/large"
    assert option(direct, "--model-tokenizer") == "acme/large"
    assert "--api-key" in tool(direct)["args"]


# ---- the tokenizer ---------------------------------------------------------------------------------------------------


def test_the_tokenizer_that_a_model_names_needs_none_of_its_files() -> None:
    planned = world()
    assert option(planned, "--model-tokenizer") == "acme/tokenizer"
    assert "nodeSelector" not in pod_of(planned)
    assert not any("hostPath" in volume for volume in pod_of(planned)["volumes"])


def tokenizer_of(kind: str, repository: str, **metadata: Any) -> Object:
    """A model called tiny that names its tokenizer."""
    return {
        "kind": kind,
        "metadata": {"name": "tiny", **metadata},
        "spec": {**MODEL["spec"], "additionalMetadata": {"tokenizer": repository}},
    }


CLUSTERS_TINY = tokenizer_of("ClusterBaseModel", "acme/clusters")
OWN_TINY = tokenizer_of("BaseModel", "acme/own", namespace="models")
THEIR_TINY = tokenizer_of("BaseModel", "acme/theirs", namespace="theirs")
LORA: Object = {"kind": "FineTunedWeight", "metadata": {"name": "lora"}, "spec": {"baseModelRef": {"name": "tiny"}}}
OF_LORA = {**SERVICE, "spec": {"model": {"name": "lora", "kind": "FineTunedWeight"}}}


@pytest.mark.parametrize("kind", [{}, {"kind": "ClusterBaseModel"}, {"kind": "BaseModel"}])
def test_of_two_models_with_one_name_it_is_that_of_the_model_that_the_service_runs(kind: Object) -> None:
    service = {**SERVICE, "spec": {"model": {"name": "tiny", **kind}}}
    assert option(world(service, CLUSTERS_TINY, OWN_TINY, THEIR_TINY), "--model-tokenizer") == "acme/own"
    assert option(world(service, CLUSTERS_TINY, THEIR_TINY), "--model-tokenizer") == "acme/clusters"


@pytest.mark.parametrize(("own", "expected"), [((OWN_TINY,), "acme/own"), ((), "acme/clusters")])
def test_of_a_fine_tuned_weight_it_is_that_of_its_base_model(own: tuple[Object, ...], expected: str) -> None:
    assert option(world(OF_LORA, LORA, CLUSTERS_TINY, THEIR_TINY, *own), "--model-tokenizer") == expected


@pytest.mark.parametrize("others", [(), (LORA,), ({**LORA, "spec": {}},)])
def test_without_a_base_model_the_tokenizer_is_unknown(others: tuple[Object, ...]) -> None:
    reason, message = refusal(world(OF_LORA, *others))
    assert (reason, message[:31]) == ("TokenizerUnknown", "The service's model is unknown.")


def test_else_it_is_read_from_the_model_on_a_node_that_has_it() -> None:
    planned = world(SERVICE, MODEL)
    assert option(planned, "--model-tokenizer") == "/raid/models/acme/tiny"
    assert pod_of(planned)["nodeSelector"] == {"models.ome.io/clusterbasemodel.tiny": "Ready"}
    [claim] = claims_of(planned)
    assert claim == claim_name("u-tiny", "/raid/models/acme/tiny", "models")
    volume = next(volume for volume in pod_of(planned)["volumes"] if volume["name"] == "model")
    assert volume["persistentVolumeClaim"] == {"claimName": claim, "readOnly": True}
    annotations = planned_job(planned)["spec"]["template"]["metadata"]["annotations"]
    assert annotations[USES] == use_of("/raid/models/acme/tiny"), "the model would delete the claim with its path"
    mount = next(mount for mount in tool(planned)["volumeMounts"] if mount["name"] == volume["name"])
    assert (mount["mountPath"], mount["readOnly"]) == ("/raid/models/acme/tiny", True)


def test_or_from_a_claim_as_a_claim() -> None:
    spec = {"storage": {"storageUri": "pvc://weights/tiny"}}
    model = {"kind": "BaseModel", "metadata": {"name": "tiny", "namespace": "models", "uid": "u"}, "spec": spec}
    volumes = pod_of(world(SERVICE, model))["volumes"]
    assert {"claimName": "weights", "readOnly": True} in [volume.get("persistentVolumeClaim") for volume in volumes]


def test_files_of_another_namespaces_model_are_not_read() -> None:
    job = resource({"inferenceService": {"name": "chat", "namespace": "theirs"}})
    theirs = {**SERVICE, "metadata": {"name": "chat", "namespace": "theirs"}}
    model = {**MODEL, "kind": "BaseModel", "metadata": {"name": "tiny", "namespace": "theirs"}}
    reason, message = refusal(world(theirs, model, job=job))
    assert reason == "TokenizerUnknown"
    assert "additionalMetadata.tokenizer" in message


def test_an_address_without_a_known_tokenizer_says_where_to_name_it() -> None:
    job = resource({"endpoint": {**DIRECT["endpoint"], "modelName": "my model"}})
    reason, message = refusal(world(job=job))
    assert reason == "TokenizerUnknown"
    assert TOKENIZER_ANNOTATION in message
    job["metadata"]["annotations"] = {TOKENIZER_ANNOTATION: "acme/tokenizer"}
    assert option(world(job=job), "--model-tokenizer") == "acme/tokenizer"


# ---- where the results go --------------------------------------------------------------------------------------------


def output(uri: str, **fields: Any) -> World:
    return world(job=resource(outputLocation={"storageUri": uri, **fields}))


def test_results_lie_on_a_claim() -> None:
    planned = output("pvc://results/monday/")
    assert option(planned, "--experiment-base-dir") == "/results"
    assert {"name": "results", "persistentVolumeClaim": {"claimName": "results"}} in pod_of(planned)["volumes"]
    assert {"name": "results", "mountPath": "/results", "subPath": "monday"} in tool(planned)["volumeMounts"]


def test_results_go_into_a_bucket_whose_keys_are_variables() -> None:
    planned = output("s3://results/monday", key="s3-keys", parameters={"aws_region": "eu-central-1"})
    assert option(planned, "--storage-provider") == "aws"
    assert option(planned, "--storage-bucket") == "results"
    assert option(planned, "--storage-prefix") == "monday"
    assert option(planned, "--storage-aws-region") == "eu-central-1"
    env = {one["name"]: one.get("valueFrom", {}).get("secretKeyRef") for one in tool(planned)["env"]}
    assert env["AWS_SECRET_ACCESS_KEY"] == {"name": "s3-keys", "key": "AWS_SECRET_ACCESS_KEY", "optional": True}


def test_google_and_oracle_have_buckets_too() -> None:
    assert option(output("gs://results", key="gcp"), "--storage-provider") == "gcp"
    oracle = output(
        "oci://n/space/b/results/o/a/b", parameters={"auth": "instance_principal", "region": "eu-frankfurt-1"}
    )
    words = tool(oracle)["args"]
    assert words[words.index("--namespace") :] == [
        "--namespace", "space", "--upload-results", "--storage-provider", "oci", "--storage-bucket", "results",
        "--storage-prefix", "a/b", "--auth", "instance_principal", "--region", "eu-frankfurt-1", "--log-dir", "/tmp",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["aws_secret_access_key", "security_token", "github_token", "azure_account_key"])
def test_a_secret_in_the_spec_is_refused(name: str) -> None:
    reason, message = refusal(output("s3://results", parameters={name: "hush"}))
    assert reason == "InvalidSpec"
    assert "hush" not in message
    assert "outputLocation.key" in message


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("az://account/container", "OutputNotServed"),
        ("oci://registry/repository", "OutputNotServed"),
        ("pvc://Results", "InvalidSpec"),
        ("pvc://results/../other", "InvalidSpec"),
        ("pvc://", "InvalidSpec"),
        ("s3://", "OutputNotServed"),
        ("", "OutputNotServed"),
    ],
)
def test_a_place_that_is_none_is_refused(uri: str, reason: str) -> None:
    assert refusal(output(uri))[0] == reason


# ---- the pod ---------------------------------------------------------------------------------------------------------


def test_no_secret_is_an_argument_and_none_is_reported() -> None:
    job = resource(
        DIRECT,
        huggingFaceSecretReference={"name": "hub"},
        podOverride={"env": [{"name": "MODEL_API_KEY", "valueFrom": {"secretKeyRef": {"name": "api", "key": "key"}}}]},
    )
    container = tool(world(job=job))
    assert {"name": "hub", "key": "HUGGINGFACE_API_KEY", "optional": True} in [
        one.get("valueFrom", {}).get("secretKeyRef") for one in container["env"]
    ]
    assert container["command"][:2] == ["python3", "-c"]
    assert {"HF_TOKEN", "MODEL_API_KEY"} <= set(container["command"][-1].split(","))
    assert tool(world())["command"] == ["genai-bench"]


@pytest.mark.parametrize(
    "override",
    [
        {"envFrom": [{"secretRef": {"name": "all"}}]},
        {"env": [{"name": "MODEL_API_KEY", "value": "sk-plain"}]},
    ],
)
def test_secrets_from_other_sources_are_not_revealed_either(override: Object) -> None:
    assert "MODEL_API_KEY" in tool(world(job=resource(podOverride=override)))["command"][-1]


def test_pod_override_is_laid_over_the_pod() -> None:
    override = {
        "image": "mirror.example/genai-bench:1",
        "env": [{"name": "HOME", "value": "/home/bench"}],
        "resources": {"requests": {"cpu": "8"}},
        "tolerations": [{"key": "bench", "operator": "Exists"}],
        "nodeSelector": {"pool": "cpu"},
        "volumes": [{"name": "more", "emptyDir": {}}],
        "volumeMounts": [{"name": "more", "mountPath": "/more"}],
    }
    planned = world(SERVICE, MODEL, job=resource(podOverride=override))
    pod, container = pod_of(planned), tool(planned)
    assert container["image"] == "mirror.example/genai-bench:1"
    assert {one["name"]: one.get("value") for one in container["env"]}["HOME"] == "/home/bench"
    assert {one["name"] for one in container["env"]} >= {"ENABLE_UI", "HF_HOME"}
    assert container["resources"]["requests"] == {"cpu": "8", "memory": "1Gi"}
    assert pod["tolerations"] == override["tolerations"]
    assert pod["nodeSelector"] == {"pool": "cpu", "models.ome.io/clusterbasemodel.tiny": "Ready"}
    assert {"more", "results", "model"} <= {volume["name"] for volume in pod["volumes"]}
    assert {"/more", "/results"} <= {mount["mountPath"] for mount in container["volumeMounts"]}


def test_the_limits_for_authors_apply_to_pod_override_alone() -> None:
    """And nothing else: the image and the model's folder are the operator's."""
    restricting = msgspec.structs.replace(
        SETTINGS, authors=msgspec.structs.replace(SETTINGS.authors, image_prefixes=("x/",))
    )

    def refused(**override: Any) -> str:
        api, snapshot = BENCHMARKS, world(SERVICE, MODEL, settings=restricting, job=resource(podOverride=override))
        try:
            judged(api, snapshot, api.resolve(snapshot), NO_LABELS)
        except InvalidSpecError as error:
            return error.message
        return ""

    assert refused() == ""
    assert "image" in refused(image="other/genai-bench:1")
    assert "/etc" in refused(volumes=[{"name": "etc", "hostPath": {"path": "/etc"}}])


def test_the_sidecar_begins_before_the_tool_and_reads_its_results_alone() -> None:
    (sidecar,) = pod_of(world(SERVICE, MODEL))["initContainers"]
    assert (sidecar["image"], sidecar["restartPolicy"]) == ("slipway:1", "Always")
    assert sidecar["args"] == ["loader", "summary", "/results"]
    assert sidecar["volumeMounts"] == [
        {"name": "results", "mountPath": "/results", "subPath": "monday", "readOnly": True}
    ]
    assert "env" not in sidecar


def test_the_operators_mirror_and_proxies_are_the_tools_too() -> None:
    settings = msgspec.structs.replace(
        SETTINGS, hugging_face_endpoint="http://hub.example", loader=Loader(env={"HTTPS_PROXY": "http://proxy:1"})
    )
    env = {one["name"]: one.get("value") for one in tool(world(settings=settings))["env"]}
    assert env["HF_ENDPOINT"] == "http://hub.example"
    assert env["HTTPS_PROXY"] == "http://proxy:1"


def test_requests_and_datasets_are_as_they_are_asked_for() -> None:
    fields = {
        "additionalRequestParams": {"temperature": "0.5"},
        "trafficScenarios": ["D(10,5)"],
        "numConcurrency": [1, 2],
    }
    benchmark = resource(**fields, dataset={"storageUri": "pvc://data/questions.csv"}, resultFolderName="monday")
    planned = world(job=benchmark)
    assert option(planned, "--additional-request-params") == '{"temperature": 0.5}'
    assert option(planned, "--dataset-path") == "/datasets/questions.csv"
    assert option(planned, "--experiment-folder-name") == "monday"
    hub = world(job=resource(dataset={"storageUri": "hf://datasets/acme/questions"}))
    assert option(hub, "--dataset-path") == "acme/questions"


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"endpoint": {}}, "exactly one of inferenceService and endpoint"),
        ({"endpoint": {**OF_SERVICE, **DIRECT}}, "exactly one of inferenceService and endpoint"),
        ({"endpoint": {"endpoint": {**DIRECT["endpoint"], "modelName": ""}}}, "modelName is required"),
        ({"endpoint": {"endpoint": {**DIRECT["endpoint"], "url": "https://u:p@api.example"}}}, "MODEL_API_KEY"),
        ({"trafficScenarios": ["E(64)"]}, "'E(64)' is not valid for text-to-text"),
        ({"task": "text-to-embeddings", "trafficScenarios": ["E(64,128)"]}, "write E(64)"),
        ({"task": "image-to-text"}, "needs a dataset"),
        ({"maxTimePerIteration": 0}, "positive"),
        ({"numConcurrency": [1, -1]}, "positive"),
        ({"resultFolderName": "../monday"}, "not a directory name"),
        ({"resultFolderName": ".."}, "not a directory name"),
        ({"task": "text-to-speech"}, "task"),
        ({"podOverride": {"env": "PATH"}}, "podOverride"),
    ],
)
def test_a_spec_that_cannot_be_measured_is_refused_by_name(fields: Object, complaint: str) -> None:
    reason, message = refusal(world(job=resource(**fields)))
    assert reason == "InvalidSpec"
    assert complaint in message


@pytest.mark.parametrize("uri", ["s3://data/questions", "hf://a/b/c", "pvc://data/../x"])
def test_a_dataset_that_cannot_be_read_is_refused(uri: str) -> None:
    assert refusal(world(job=resource(dataset={"storageUri": uri})))[0] in ("SourceNotServed", "InvalidSpec")


# ---- what becomes of it ----------------------------------------------------------------------------------------------


def begun(state: str = "", message: str = "", *, phase: str = "Running", planned: World | None = None) -> World:
    """A benchmark whose Job is there. ``state``: Complete or Failed, and ``message`` the sidecar's last words."""
    planned = planned or world()
    job = planned_job(planned)
    job["metadata"]["uid"] = "j1"
    conditions = [{"type": state, "status": "True", "lastTransitionTime": "2026-11-22T09:59:00Z"}] if state else []
    job["status"] = {"startTime": "2026-11-22T09:00:00Z", "conditions": conditions}
    if state == "Complete":
        job["status"]["completionTime"] = "2026-11-22T09:59:00Z"
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "speed", "uid": "j1", "controller": True}
    ended = {"name": "summary", "restartCount": 0, "state": {"terminated": {"message": message}}}
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "models", "uid": "p1", "ownerReferences": [owner],
                     "creationTimestamp": "2026-11-22T09:00:00Z"},
        "status": {
            "phase": phase,
            "initContainerStatuses": [ended],
        },
    }  # fmt: skip
    return msgspec.structs.replace(planned, children={at(JOB, "speed"): job}, pods=[pod])


def summary(**fields: Any) -> str:
    run = Run(
        scenario="D(10,5)", concurrency=2, requests=300, failed=0, seconds=10.0, requests_per_second=30.0,
        input_tokens_per_second=300.0, output_tokens_per_second=150.0, first_token_seconds=0.02,
        first_token_seconds_p99=0.05,
    )  # fmt: skip
    return encode_summary(Summary(**{"requests": 300, "runs": (run,), **fields})).decode()


def reason(expected: Object, condition: str = "Available") -> str:
    return str(next(one["reason"] for one in expected["conditions"] if one["type"] == condition))


def test_a_benchmark_that_runs_says_since_when() -> None:
    benchmark_status = status(begun())
    assert (benchmark_status["state"], benchmark_status["startTime"]) == ("Running", "2026-11-22T09:00:00Z")
    assert "completionTime" not in benchmark_status


def test_a_benchmark_that_is_over_says_what_it_measured() -> None:
    benchmark_status = status(begun("Complete", summary(), phase="Succeeded"))
    assert (benchmark_status["state"], benchmark_status["completionTime"]) == ("Completed", "2026-11-22T09:59:00Z")
    (run,) = json.loads(benchmark_status["details"])["runs"]
    assert (run["outputTokensPerSecond"], run["firstTokenSeconds"]) == (150.0, 0.02)
    assert "failureMessage" not in benchmark_status


def test_a_benchmark_with_requests_that_failed_has_failed_with_the_first_error() -> None:
    """genai-bench itself ends well as long as some requests are answered."""
    words = summary(failed=3, error="HTTP 404: no such model")
    benchmark_status = status(begun("Complete", words, phase="Succeeded"))
    assert (benchmark_status["state"], reason(benchmark_status)) == ("Failed", "RequestsFailed")
    assert "3 of 300" in benchmark_status["failureMessage"]
    assert "HTTP 404: no such model" in benchmark_status["failureMessage"]
    assert json.loads(benchmark_status["details"])["failed"] == 3


def test_a_benchmark_without_any_request_has_failed() -> None:
    benchmark_status = status(begun("Complete", summary(requests=0, runs=()), phase="Succeeded"))
    assert (benchmark_status["state"], reason(benchmark_status)) == ("Failed", "NoRequests")


def test_a_tool_that_ended_early_is_reported_by_its_last_log_lines() -> None:
    ended = begun("Failed", summary(requests=0, runs=()), phase="Failed")
    ended.pods[0]["status"]["containerStatuses"] = [
        {
            "name": "genai-bench",
            "state": {"terminated": {"exitCode": 1, "message": "Traceback\nOSError: no such tokenizer"}},
        }
    ]
    benchmark_status = status(ended)
    assert (benchmark_status["state"], reason(benchmark_status)) == ("Failed", "BenchmarkFailed")
    assert "OSError: no such tokenizer." in benchmark_status["failureMessage"]


def test_last_words_are_waited_for_and_then_missed() -> None:
    late = begun("Complete", "", phase="Succeeded")
    soon = msgspec.structs.replace(late, now=unix_time("2026-11-22T09:59:10Z"))
    assert worlds.status(BENCHMARKS, soon).recheck_seconds == SUMMARY_SECONDS - 10
    assert status(soon)["state"] == "Running"
    benchmark_status = status(late)
    assert (benchmark_status["state"], reason(benchmark_status)) == ("Failed", "NoResults")


@pytest.mark.parametrize("state", ["Complete", "Failed"])
def test_a_pod_that_was_taken_away_is_reported_as_such(state: str) -> None:
    """The tool ends well when it is stopped: the Job of a pod that was preempted is complete."""
    benchmark_status = status(msgspec.structs.replace(begun(state), pods=[]))
    assert (benchmark_status["state"], reason(benchmark_status)) == ("Failed", "PodRemoved")
    assert "preempted" in benchmark_status["failureMessage"]


def test_a_report_outlives_its_pod() -> None:
    over = begun("Complete", summary(), phase="Succeeded")
    benchmark_status = status(over)
    stored = {
        **benchmark_status,
        "conditions": [*benchmark_status["conditions"], {"type": "Ready", "status": "True", "reason": "Ready"}],
    }
    kept = msgspec.structs.replace(over, resource={**over.resource, "status": stored}, pods=[])
    assert status(kept) == benchmark_status


def test_an_image_that_cannot_be_pulled_is_reported() -> None:
    waiting = begun(phase="Pending")
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    waiting.pods[0]["status"]["initContainerStatuses"] = []
    waiting.pods[0]["status"]["containerStatuses"] = [
        {"name": "genai-bench", "image": "nope:1", "restartCount": 0, "state": state}
    ]
    benchmark_status = status(waiting)
    assert (benchmark_status["state"], reason(benchmark_status)) == ("Pending", "ImagePullBackOff")


def test_a_job_stays_unchanged_after_its_service_is_gone() -> None:
    """Else an upgrade of the operator, or a service that goes, would run or remove benchmarks that are over."""
    there = begun("Complete", summary(), phase="Succeeded")
    alone = worlds.without(there)
    (kept,) = worlds.plan(BENCHMARKS, alone).children
    assert kept["spec"] == there.child(JOB, "speed")["spec"]  # type: ignore[index]
    assert status(alone)["state"] == "Completed"


def test_another_spec_is_another_benchmark() -> None:
    """The previous Job is deleted first."""
    there = begun("Complete", summary(), phase="Succeeded")
    changed = msgspec.structs.replace(there, resource=resource(maxRequestsPerIteration=10))
    assert worlds.plan(BENCHMARKS, changed).children == ()
    assert status(changed)["state"] == "Pending"
    gone = msgspec.structs.replace(changed, children={}, pods=[])
    assert (
        planned_job(gone)["metadata"]["annotations"][SPEC] != there.child(JOB, "speed")["metadata"]["annotations"][SPEC]
    )  # type: ignore[index]


def test_a_refused_spec_has_failed_and_is_not_polled() -> None:
    outcome = worlds.status(BENCHMARKS, world(job=resource(task="none")), Rejection("InvalidSpec", "It is wrong."))
    assert (outcome.status["state"], outcome.status["failureMessage"]) == ("Failed", "It is wrong.")
    assert outcome.recheck_seconds is None


OTHER_NAMESPACE = {**SERVICE, "metadata": {"name": "chat", "namespace": "others"}}
BY_PREDICTOR = {**SERVICE, "spec": {"predictor": {"model": {"baseModel": "tiny"}}}}


@pytest.mark.parametrize(
    ("service", "namespace", "name", "change", "woken"),
    [
        (SERVICE, "", "tiny", "created", True),
        (SERVICE, "", "tiny", "deleted", True),
        (SERVICE, "", "tiny", "spec", True),
        (SERVICE, "", "tiny", "status", False),
        (SERVICE, "", "other", "spec", False),
        (SERVICE, "models", "tiny", "spec", True),
        (SERVICE, "others", "tiny", "spec", False),
        (BY_PREDICTOR, "", "tiny", "spec", True),
        (OTHER_NAMESPACE, "", "tiny", "spec", False),
        ({**SERVICE, "spec": {}}, "", "tiny", "spec", False),
    ],
)
def test_a_model_that_changes_wakes_the_benchmarks_of_its_services(
    service: Object, namespace: str, name: str, change: str, woken: bool
) -> None:
    listers = world(resource(), service).listers
    metadata = {"name": name, "namespace": namespace, "generation": 1}
    before, after = {"metadata": metadata}, {"metadata": metadata | {"generation": 1 + (change == "spec")}}
    kind = names.BASE_MODEL if namespace else names.CLUSTER_BASE_MODEL
    (watch,) = (one for one in BENCHMARKS.watches(SETTINGS) if one.kind == kind)
    changed = Change(None if change == "created" else before, None if change == "deleted" else after)
    assert list(watch.enqueue(changed, listers)) == [Key("models", "speed")] * woken


@pytest.mark.parametrize(
    ("kind", "name", "woken"),
    [
        (names.FINE_TUNED_WEIGHT, "lora", True),
        (names.FINE_TUNED_WEIGHT, "other", False),
        (names.CLUSTER_BASE_MODEL, "tiny", True),
        (names.CLUSTER_BASE_MODEL, "other", False),
    ],
)
def test_a_fine_tuned_weight_or_its_model_that_changes_wakes_the_benchmarks(kind: Kind, name: str, woken: bool) -> None:
    listers = world(resource(), OF_LORA, LORA).listers
    (watch,) = (one for one in BENCHMARKS.watches(SETTINGS) if one.kind == kind)
    changed = Change(None, {"metadata": {"name": name, "generation": 1}})
    assert list(watch.enqueue(changed, listers)) == [Key("models", "speed")] * woken


@pytest.mark.parametrize("words", ["", "{", "[]", '{"requests": -1}', '{"runs": 1}', "x" * 10_000])
def test_words_of_a_stranger_are_no_results(words: str) -> None:
    assert reason(status(begun("Complete", words, phase="Succeeded"))) == "NoResults"


# ---- strangers -------------------------------------------------------------------------------------------------------

FULL = resource(
    OF_SERVICE,
    trafficScenarios=["D(10,5)"],
    numConcurrency=[1],
    additionalRequestParams={"temperature": "1"},
    dataset={"storageUri": "pvc://data/x.csv", "parameters": {"a": "b"}},
    resultFolderName="monday",
    huggingFaceSecretReference={"name": "hub"},
    serviceMetadata={"engine": "vLLM", "version": "1", "gpuType": "H100", "gpuCount": 1},
    podOverride={
        "image": "a:1",
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        "envFrom": [{"secretRef": {"name": "s"}}],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        "tolerations": [{"key": "k"}],
        "nodeSelector": {"a": "b"},
        "affinity": {"nodeAffinity": {}},
        "resources": {"limits": {"cpu": "1"}},
    },
    outputLocation={"storageUri": "s3://results/x", "key": "k", "parameters": {"aws_region": "r"}},
)
ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**30,
    1.5,
    "",
    "x",
    "\x00",
    "../..",
    [],
    [1],
    [[]],
    {},
    {"x": 1},
    [{}],
    [{"x": None}],
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, part in below for place in places(part, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    if not path:
        return odd
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], odd)
    return copy


@each(places(FULL["spec"])[1:], ids=lambda path: ".".join(map(str, path)))
def test_nothing_in_a_spec_breaks_more_than_the_benchmark(path: tuple[Any, ...]) -> None:
    api = BENCHMARKS
    for odd in ODD:
        job = {**FULL, "spec": replaced(FULL["spec"], path, odd)}
        try:
            snapshot = world(job=job)
            view = api.resolve(snapshot)
            plan = judged(api, snapshot, view, NO_LABELS)
        except InvalidSpecError as error:
            plan = None
            benchmark_status = api.status(view, Rejection(error.reason, error.message)).status
            assert benchmark_status["state"] == "Failed"
        if plan is not None:
            assert json.loads(json.dumps(plan.children[0] if plan.children else {})) is not None
            api.status(view, None)
