"""Pods of a service: what its manifests say, and what they are given beside."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from slipway.apis.ome import names
from slipway.apis.ome.components.adapters import Adapter, adapter_of
from slipway.apis.ome.components.overlay import components, runner
from slipway.apis.ome.components.pods import OWN_LABELS, PodContext, template
from slipway.apis.ome.models.storage import Mount
from slipway.apis.ome.models.volumes import claim_name
from slipway.engines.programs.sglang import SGLANG as ENGINE
from slipway.engines.recognition import recognise
from slipway.kube.objects import Object
from slipway.kube.schemas.core import core_schema
from slipway.serving.containers.diagnosis import TEMPLATE
from slipway.serving.containers.freedoms import freedoms
from slipway.serving.contract.api import USES, InvalidSpecError
from slipway.serving.contract.settings import Settings
from tests.schemas import RandomObjects, faults, filled
from tests.tables import each, seeds
from tests.unit.apis.ome.cases import rows

SGLANG = ["python3", "-m", "sglang.launch_server", "--port", "8080", "--model-path", "$(MODEL_PATH)"]
VLLM = ["python3", "-m", "vllm.entrypoints.openai.api_server", "--port", "8080", "--model", "$(MODEL_PATH)"]
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
MODEL = Mount(
    uid="uid-model",
    mark="clusterbasemodel.llama",
    name="llama-3-2-1b",
    kind=names.CLUSTER_BASE_MODEL,
    namespace="",
    path="/raid/models/meta/llama",
    node_label="models.ome.io/clusterbasemodel.llama-3-2-1b",
    vendor="meta",
    format_name="safetensors",
    format_version="1.0.0",
    identity="abc",
)
CLAIMED = claim_name(MODEL.uid, MODEL.path, "models")
CLAIM = replace(MODEL, claim="weights", claim_namespace="models", sub_path="llama", node_label="", path="/mnt/llama")


def weights(name: str = "lora", **fields: Any) -> Adapter:
    mount = Mount(
        uid=f"uid-{name}",
        mark=f"finetunedweight.{name}",
        name=name,
        kind=names.FINE_TUNED_WEIGHT,
        namespace="",
        path=f"/raid/models/{name}",
        node_label=f"models.ome.io/finetunedweight.{name}",
        identity="def",
    )
    return Adapter(mount=mount, strategy="lora", **fields)


def context(**fields: Any) -> PodContext:
    metadata = {"name": "chat", "namespace": "models", "uid": "uid-chat", **fields.pop("metadata", {})}
    arguments = {"runtime": "srt-llama", "model": MODEL, "drain_seconds": 60, **fields}
    return PodContext(service={"metadata": metadata, "spec": {}}, **arguments)


def pod(part: Object, name: str = "engine", role: Any = "pod", **fields: Any) -> Object:
    """The pod of a service that says this of a component, and has no runtime."""
    (component,) = components({"metadata": {"name": "chat"}, "spec": {name: part}}, None)
    return template(component, role, context(**fields))


def container(command: list[str] = SGLANG, **fields: Any) -> Object:
    return {"name": "ome-container", "image": "engine:1", "command": command, **fields}


def main(**fields: Any) -> Object:
    """The container that answers, where only that is said."""
    of_pod = {field: fields.pop(field) for field in ("model", "adapters", "metadata") if field in fields}
    return runner(pod({"runner": container(**fields)}, **of_pod)["spec"])


def variables(observed: Object) -> dict[str, str]:
    return {one["name"]: one["value"] for one in observed.get("env", ()) if "value" in one}


def refused(**fields: Any) -> InvalidSpecError:
    with pytest.raises(InvalidSpecError) as caught:
        main(**fields)
    return caught.value


def test_a_pod_has_all_that_its_manifest_leaves_out() -> None:
    spec = pod({"runner": container(ports=[{"containerPort": 8080}])})["spec"]
    assert faults(core_schema("PodSpec"), spec) == []
    assert spec == {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 75,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "nodeSelector": {MODEL.node_label: "Ready"},
        "volumes": [{"name": MODEL.name, "persistentVolumeClaim": {"claimName": CLAIMED, "readOnly": True}}],
        "containers": [
            {
                "name": "ome-container",
                "image": "engine:1",
                "imagePullPolicy": "IfNotPresent",
                "command": SGLANG,
                "env": [{"name": "MODEL_PATH", "value": MODEL.path}, {"name": "SERVED_MODEL_NAME", "value": "chat"}],
                "ports": [{"name": "http", "containerPort": 8080}],
                "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 10},
                "lifecycle": {"preStop": ENGINE.drain(60).hook(8080)},
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [{"name": MODEL.name, "mountPath": MODEL.path, "readOnly": True}],
            }
        ],
    }


def test_a_pod_keeps_the_fields_of_its_manifest() -> None:
    container_fields = {
        "securityContext": {"privileged": True},
        "readinessProbe": {"httpGet": {"path": "/health", "port": 8080}},
        "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
        "imagePullPolicy": "Always",
        "terminationMessagePolicy": "File",
        "env": [{"name": "MODEL_PATH", "value": "/elsewhere"}],
    }
    of_pod = {
        "serviceAccountName": "mine",
        "enableServiceLinks": True,
        "terminationGracePeriodSeconds": 5,
        "nodeSelector": {MODEL.node_label: "Updating"},
    }
    spec = pod({"runner": container(**container_fields), **of_pod})["spec"]
    assert of_pod.items() <= spec.items()
    assert "automountServiceAccountToken" not in spec
    main_container = runner(spec)
    assert main_container["env"][-1] == container_fields.pop("env")[0]
    assert len(main_container["env"]) == 2
    assert container_fields.items() <= main_container.items()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ({"runAsUser": 5}, {"allowPrivilegeEscalation": False, "runAsUser": 5}),
        ({"capabilities": {"add": ["SYS_ADMIN"]}}, {"capabilities": {"add": ["SYS_ADMIN"]}}),
        ({"privileged": True}, {"privileged": True}),
    ],
)
def test_a_container_gains_no_privileges_that_it_does_not_ask_for(text: Object, expected: Object) -> None:
    """The API server refuses to forbid them to one that is privileged."""
    assert main(securityContext=text)["securityContext"] == expected


def test_a_low_port_takes_the_one_capability_that_the_strictest_standard_leaves() -> None:
    security_context = main(command=["text-generation-launcher", "--port", "80"])["securityContext"]
    assert security_context["capabilities"] == {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{.Name}}.{{ .Namespace }}", "chat.models"),
        ("{{.Labels.tier}}-{{ .Annotations.note }}", 'gold-a "quoted" <text>\n'),
        ("{{.Labels.none}}", ""),
        ("{{ .Labels.looks }}", "{{.Name}}"),
        ("{% for m in messages %}{{ m.content }}{{- .Name -}}", "{% for m in messages %}{{ m.content }}{{- .Name -}}"),
        ("{{.Name", "{{.Name"),
    ],
)
def test_placeholders_are_replaced_and_other_braces_stay(text: str, expected: str) -> None:
    """The original writes HTML for quotes, and fails at the template of a chat."""
    metadata = {
        "labels": {"tier": "gold", "looks": "{{.Name}}"},
        "annotations": {"note": 'a "quoted" <text>\n'},
    }
    assert main(args=[text], metadata=metadata)["args"] == [expected]


def test_placeholders_cannot_fill_the_memory() -> None:
    metadata = {"annotations": {"long": "x" * 200_000}}
    error = refused(args=["{{.Annotations.long}}"] * 10, metadata=metadata)
    assert error.reason == "InvalidSpec"


@pytest.mark.parametrize(
    ("role", "resources", "expected"),
    [
        ("pod", {"limits": {"nvidia.com/gpu": 2}}, "2"),
        ("pod", {"requests": {"nvidia.com/gpu": "4"}}, "4"),
        ("pod", {"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "4"}}, "2"),
        ("pod", {"limits": {"amd.com/gpu": "8"}}, "8"),
        ("pod", {"limits": {"cpu": "8"}}, None),
        ("leader", {"limits": {"nvidia.com/gpu": "8"}}, "24"),
        ("worker", {"limits": {"nvidia.com/gpu": "8"}}, "24"),
    ],
)
def test_the_parallelism_is_that_of_the_whole_group(role: str, resources: Object, expected: str | None) -> None:
    main = container(resources=resources)
    part = {"runner": main} | ({} if role == "pod" else {"worker": {"size": 2}})
    assert variables(runner(pod(part, role=role)["spec"])).get("PARALLELISM_SIZE") == expected


def test_a_quantity_that_is_none_is_refused() -> None:
    assert refused(resources={"limits": {"nvidia.com/gpu": "many"}}).reason == "InvalidSpec"


def test_a_claim_is_mounted_as_a_claim() -> None:
    """The original mounts the path of the node in its place."""
    spec = pod({"runner": container()}, model=CLAIM)["spec"]
    claim = {"claimName": "weights", "readOnly": True}
    assert spec["volumes"] == [{"name": CLAIM.name, "persistentVolumeClaim": claim}]
    mount = {"name": CLAIM.name, "mountPath": "/mnt/llama", "readOnly": True, "subPath": "llama"}
    assert runner(spec)["volumeMounts"] == [mount]
    assert "nodeSelector" not in spec


def test_a_claim_of_another_namespace_is_refused() -> None:
    assert refused(model=replace(CLAIM, claim_namespace="ome")).reason == "ClaimOfOtherNamespace"


def test_a_model_without_files_is_not_mounted() -> None:
    spec = pod({"runner": container()}, model=replace(MODEL, path=""))["spec"]
    assert "volumes" not in spec
    assert "MODEL_PATH" not in variables(runner(spec))


@pytest.mark.parametrize("name", ["a" * 100, "llama-3.2", "a.b" * 30])
def test_a_models_name_may_be_one_that_no_volume_has(name: str) -> None:
    (volume,) = pod({"runner": container()}, model=replace(MODEL, name=name))["spec"]["volumes"]
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", volume["name"])


@pytest.mark.parametrize("row", rows("TestUpdateVolumeMounts"), ids=lambda row: str(row["name"]))
def test_models_are_mounted_as_in_the_originals_tables(row: Object) -> None:
    model = row["model"] and replace(MODEL, name=row["model"]["metadata"]["name"], path="/model/test-model")
    main_container = main(model=model)
    assert main_container.get("volumeMounts", []) == row["want"].get("volumeMounts", [])
    assert [one for one in main_container["env"] if one["name"] == "MODEL_PATH"] == row["want"].get("env", [])


@pytest.mark.parametrize("mount", [{"name": MODEL.name, "mountPath": "/old"}, {"name": "x", "mountPath": MODEL.path}])
def test_a_mount_of_the_manifest_gives_way_to_the_models(mount: Object) -> None:
    own = {"name": MODEL.name, "mountPath": MODEL.path, "readOnly": True}
    other = {"name": "cache", "mountPath": "/cache"}
    assert main(volumeMounts=[mount, other])["volumeMounts"] == [other, own]


@pytest.mark.parametrize("row", rows("TestUpdateVolumeMount"), ids=lambda row: str(row["name"]))
def test_mounts_give_way_as_in_the_originals_tables(row: Object) -> None:
    """The original keeps the place in the list, which says nothing."""
    volume_mount = row["volumeMount"]
    model = volume_mount and replace(
        CLAIM, name=volume_mount["name"], path=volume_mount["mountPath"], sub_path=volume_mount["subPath"]
    )
    mounts = main(model=model, volumeMounts=row["container"]["volumeMounts"])["volumeMounts"]
    assert {one["mountPath"]: one for one in mounts} == {one["mountPath"]: one for one in row["expectedMounts"]}


def test_an_author_cannot_have_a_models_folder_to_write_in() -> None:
    volume = {"name": MODEL.name, "hostPath": {"path": "/"}}
    sidecar = {"name": "x", "image": "x", "volumeMounts": [{"name": MODEL.name, "mountPath": "/m"}]}
    pod_template = pod({"runner": container(), "containers": [sidecar], "volumes": [volume]})
    [volume] = pod_template["spec"]["volumes"]
    assert volume["persistentVolumeClaim"] == {"claimName": CLAIMED, "readOnly": True}
    deployment = {"kind": "Deployment", "metadata": {"name": "x"}, "spec": {"template": pod_template}}
    assert [one for one in freedoms([deployment]) if one.setting not in ("image_prefixes", "privileged")] == []


def test_a_router_has_an_account_and_neither_model_nor_gpus() -> None:
    spec = pod({"runner": container(["python3", "-m", "sglang_router.launch_router"]), "config": {"A": "1"}}, "router")[
        "spec"
    ]
    assert spec["serviceAccountName"] == "chat-router"
    assert "automountServiceAccountToken" not in spec
    assert "volumes" not in spec
    assert "nodeSelector" not in spec
    assert variables(runner(spec)) == {"MODEL_PATH": MODEL.path, "A": "1"}


@pytest.mark.parametrize("argument", ["$(MODEL_PATH)", MODEL.path])
def test_a_router_that_reads_the_model_runs_where_that_is(argument: str) -> None:
    command = ["smg", "launch", "--model-path", argument]
    spec = pod({"runner": container(command)}, "router")["spec"]
    assert spec["nodeSelector"] == {MODEL.node_label: "Ready"}
    assert runner(spec)["volumeMounts"][0]["mountPath"] == MODEL.path


def test_a_routers_config_has_names_of_variables() -> None:
    with pytest.raises(InvalidSpecError, match="is not a variable name"):
        pod({"runner": container(), "config": {"a=b": "1"}}, "router")


@pytest.mark.parametrize(
    ("command", "ports", "fine"),
    [
        (SGLANG, [{"containerPort": 8080}], True),
        (SGLANG, [{"containerPort": 1}, {"containerPort": 8080}], True),
        (SGLANG, [{"containerPort": 8081}], False),
        (SGLANG, [], True),
        (["acme", "--port", "9"], [{"containerPort": 8080}], True),
    ],
)
def test_arguments_must_not_move_the_port(command: list[str], ports: list[Object], fine: bool) -> None:
    if fine:
        main_container = main(command=command, ports=ports)
        named = [{"name": "http", **one} if one["containerPort"] == 8080 else one for one in ports]
        assert main_container["ports"] == (named or [{"name": "http", "containerPort": 8080, "protocol": "TCP"}])
    else:
        assert "port 8080, but its ports are 8081" in refused(command=command, ports=ports).message


def test_on_the_nodes_network_no_port_of_the_node_is_taken() -> None:
    assert "ports" not in runner(pod({"runner": container(), "hostNetwork": True})["spec"])


def test_a_worker_answers_nothing() -> None:
    part = {"leader": {"runner": container()}, "worker": {"size": 1, "runner": container(SGLANG[:3])}}
    leader, worker = (
        pod(part, role=role, metadata={"annotations": {"prometheus.io/scrape": "true"}})
        for role in ("leader", "worker")
    )
    assert "readinessProbe" in runner(leader["spec"])
    assert not {"ports", "readinessProbe"} & runner(worker["spec"]).keys()
    assert runner(worker["spec"])["volumeMounts"][0]["mountPath"] == MODEL.path
    assert "prometheus.io/scrape" in leader["metadata"]["annotations"]
    assert "prometheus.io/scrape" not in worker["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], ["--served-model-name", "chat", MODEL.path]),
        (["--served-model-name", "vllm-model"], ["--served-model-name", "vllm-model", "chat"]),
        (["--served-model-name", "chat"], ["--served-model-name", "chat"]),
    ],
)
def test_vllm_gets_the_services_name(args: list[str], expected: list[str]) -> None:
    assert main(command=VLLM, args=args)["args"] == expected


def test_vllm_in_a_script_gets_the_services_name() -> None:
    main_container = main(command=["sh", "-c", "exec vllm serve $MODEL_PATH --served-model-name 'a b'"])
    assert recognise(main_container).served_names == ("a b", "chat")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (SGLANG, ["--lora-paths", "a=/raid/models/a", "b=/raid/models/b"]),
        (["text-generation-launcher"], ["--lora-adapters", "a=/raid/models/a,b=/raid/models/b"]),
        (["llama-server"], ["--lora", "/raid/models/a", "--lora", "/raid/models/b"]),
        (
            ["vllm", "serve", "--served-model-name", "chat"],
            ["--enable-lora", "--lora-modules", "a=/raid/models/a", "b=/raid/models/b"],
        ),
    ],
)
def test_adapters_are_given_to_the_engine(command: list[str], expected: list[str]) -> None:
    adapters = (weights("a"), weights("b"))
    spec = pod({"runner": container(command)}, adapters=adapters)["spec"]
    assert runner(spec)["args"] == expected
    assert [one["mountPath"] for one in runner(spec)["volumeMounts"]] == [
        MODEL.path,
        "/raid/models/a",
        "/raid/models/b",
    ]
    assert spec["nodeSelector"] == dict.fromkeys(
        (MODEL.node_label, *(adapter.mount.node_label for adapter in adapters)), "Ready"
    )


def test_merged_weights_take_the_models_place() -> None:
    spec = pod({"runner": container()}, adapters=(weights(merged=True),))["spec"]
    assert variables(runner(spec))["MODEL_PATH"] == "/raid/models/lora"
    assert [one["mountPath"] for one in runner(spec)["volumeMounts"]] == ["/raid/models/lora"]
    assert "args" not in runner(spec)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"command": ["/bin/ollama", "serve"]}, "ollama cannot load them at startup"),
        ({"command": ["acme"]}, "an unknown engine"),
        ({"adapters": (replace(weights(), strategy="tfew"),)}, "strategy tfew"),
        ({"adapters": (weights("a", merged=True), weights("b", merged=True))}, "only one"),
        ({"command": ["sh", "-c", "vllm serve /m | tee log"]}, "list of words"),
        ({"args": ["--lora-paths", "x=/x"]}, "already contain --lora-paths"),
    ],
)
def test_adapters_that_cannot_be_served_are_refused(fields: Object, text: str) -> None:
    error = refused(**{"adapters": (weights(),), **fields})
    assert error.reason == "FineTunedWeightNotServed"
    assert text in error.message


def weight(spec: Object) -> Object:
    storage = {"storageUri": "hf://acme/lora", "path": "/raid/models/lora", **spec.pop("storage", {})}
    return {
        "kind": "FineTunedWeight",
        "metadata": {"name": "lora", "uid": "uid-lora"},
        "spec": {"storage": storage, **spec},
    }


def test_an_adapter_says_how_it_was_trained() -> None:
    adapter = adapter_of(weight({"hyperParameters": {"strategy": "LoRA"}}), Settings())
    assert (adapter.strategy, adapter.merged, adapter.path) == ("lora", False, "/raid/models/lora")


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("https://models.example/lora.gguf?sig=x", "/raid/models/lora/lora.gguf"),
        ("hf://acme/lora/q4/lora.gguf", "/raid/models/lora/lora.gguf"),
        ("hf://acme/lora", "/raid/models/lora"),
    ],
)
def test_an_adapter_may_be_one_file(uri: str, path: str) -> None:
    assert adapter_of(weight({"storage": {"storageUri": uri}}), Settings()).path == path


@pytest.mark.parametrize("row", rows("TestIsMergedFineTunedWeight"), ids=lambda row: str(row["name"]))
def test_weights_are_merged_as_in_the_originals_tables(row: Object) -> None:
    """What the table has as text that is no JSON cannot be in an object of the API server's."""
    if not row["expectError"]:
        configuration = row["fineTunedWeight"]["spec"]["configuration"]
        assert adapter_of(weight({"configuration": configuration}), Settings()).merged == row["expectedResult"]


def test_pods_have_the_originals_labels_and_annotations() -> None:
    metadata = {
        "labels": {"team": "a", "app.kubernetes.io/name": "x", "app": "y", "component": "router"},
        "annotations": {
            "note": "a",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
            "autoscaling.knative.dev/min-scale": "1",
            TEMPLATE: "frozen",
            USES: "node:of-others",
        },
    }
    part = {"runner": container(), "labels": {"tier": "gold"}, "annotations": {"note": "b"}}
    template_metadata = pod(part, metadata=metadata)["metadata"]
    assert template_metadata["labels"] == {
        "team": "a",
        "tier": "gold",
        "ome.io/inferenceservice": "chat",
        "ome.io/engine": "sglang",
        "component": "engine",
        "serving-runtime": "srt-llama",
        "fine-tuned-serving": "false",
        "base-model-name": "llama-3-2-1b",
        "base-model-size": "SMALL",
        "base-model-type": "Serving",
        "base-model-vendor": "meta",
    }
    assert template_metadata["annotations"].pop(TEMPLATE) != "frozen"
    assert template_metadata["annotations"].pop(USES) != "node:of-others"
    assert template_metadata["annotations"] == {
        "note": "b",
        "ome.io/serving-runtime": "srt-llama",
        "ome.io/base-model-name": "llama-3-2-1b",
        "ome.io/base-model-vendor": "meta",
        "ome.io/base-model-format": "safetensors",
        "ome.io/base-model-format-version": "1.0.0",
    }


def test_pods_tell_of_fine_tuned_weights() -> None:
    template_metadata = pod({"runner": container()}, adapters=(weights(merged=True),))["metadata"]
    assert template_metadata["labels"]["fine-tuned-serving"] == "true"
    assert template_metadata["labels"]["fine-tuned-weight-ft-strategy"] == "lora"
    assert template_metadata["labels"]["fine-tuned-serving-with-merged-weights"] == "true"
    assert template_metadata["annotations"]["ome.io/fine-tuned-weight-ft-strategy"] == "lora"


def test_labels_are_cut_to_what_a_label_holds() -> None:
    """The original's pods are refused where a model has a longer name."""
    long = replace(MODEL, name="m" * 200, vendor="A & B", category="-")
    labels = pod({"runner": container()}, model=long, runtime="r" * 200)["metadata"]["labels"]
    assert [value for value in labels.values() if not LABEL.fullmatch(value)] == []
    assert labels.keys() <= OWN_LABELS


def test_new_files_make_new_pods() -> None:
    """Though they lie where the former did."""
    before, after = (pod({"runner": container()}, model=replace(MODEL, identity=revision)) for revision in "ab")
    assert before["spec"] == after["spec"]
    assert before["metadata"]["annotations"][TEMPLATE] != after["metadata"]["annotations"][TEMPLATE]


TEXTS = {
    "": ("", "a", "x" * 70, "1", "a b", "{{.Name}}", "{{ .Labels.a }}", "{{ x", "500m", "$(MODEL_PATH)"),
    ".command[]": ("sh", "-c", "vllm", "serve", "vllm serve", "python3", "-m", "sglang.launch_server", "--port", "1"),
    ".args[]": ("--port", "8080", "--served-model-name", "a/b", "--lora-paths", "'", "vllm serve /m\n--a"),
    ".name": ("ome-container", "a", "b"),
    ".image": ("vllm/vllm-openai:1", "ollama/ollama", ""),
}
PODS = core_schema("PodSpec")
SEEDS = seeds(80)


def templates(seed: int) -> list[Object]:
    """What becomes of a service and a runtime as the dice throws them. Raises InvalidSpecError."""
    dice = Random(seed)
    generator = RandomObjects(dice, TEXTS, dice.choice((0.03, 0.1)))
    config, part = (filled(PODS, generator.value(PODS)) for _each in range(2))
    schema = core_schema("Container")
    part["runner"] = filled(schema, generator.value(schema)) | {"image": "vllm/vllm-openai"}
    group = {"leader": part, "worker": part} if dice.random() < 0.3 else {}
    name = dice.choice(("engine", "router"))
    service = {"metadata": {"name": "chat"}, "spec": {name: part | group}}
    (component,) = components(service, {"spec": {f"{name}Config": config}})
    common = context(
        adapters=(weights(),) if dice.random() < 0.2 else (),
        model=dice.choice((MODEL, CLAIM, None)),
        metadata={"labels": {"a": "b"}},
    )
    return [template(component, role, common) for role in (("leader", "worker") if component.leader else ("pod",))]


@each(SEEDS)
def test_a_random_pod_is_either_valid_or_refused(seed: int) -> None:
    try:
        pod_templates = templates(seed)
    except InvalidSpecError:
        pod_templates = []
    for one in pod_templates:
        assert faults(PODS, one["spec"]) == []
        assert msgspec.json.decode(msgspec.json.encode(one)) == one


def test_the_dice_throws_pods_of_both_sorts() -> None:
    reasons = []
    for seed in SEEDS:
        try:
            reasons += ["" for _template in templates(seed)]
        except InvalidSpecError as error:
            reasons.append(error.reason)
    assert 0.2 < reasons.count("") / len(reasons) < 1
    assert all(reason.isalpha() for reason in reasons if reason)


def test_only_pods_of_a_known_engine_that_are_no_group_wait_until_they_are_idle() -> None:
    unknown = main(command=["/serve"])["lifecycle"]
    assert unknown == {"preStop": {"sleep": {"seconds": 15}}}
    group = {"leader": {"runner": container()}, "worker": {"size": 1, "runner": container()}}
    for role in ("leader", "worker"):
        spec = pod(group, role=role)["spec"]
        assert runner(spec)["lifecycle"] == unknown
        assert spec["terminationGracePeriodSeconds"] == 30
