"""Which sources of OME's models are served, and where their files lie."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.apis.ome.models import storage
from slipway.apis.ome.models.storage import Mount, mount_of, parse_storage
from slipway.serving.contract.api import InvalidSpecError
from slipway.serving.contract.settings import Settings

SETTINGS = Settings(apis={"ome": {"modelRoots": ["/raid/models", "/raid/models/fast", "/mnt/models/"]}})


def model(uri: Any, kind: str = "BaseModel", /, **fields: Any) -> dict[str, Any]:
    namespace = {"namespace": "chat"} if kind == "BaseModel" else {}
    return {
        "kind": kind,
        "metadata": {"name": "tiny", "uid": "u", **namespace},
        "spec": {"storage": {"storageUri": uri, **fields}},
    }


@pytest.mark.parametrize(
    ("uri", "url", "path"),
    [
        ("hf://meta-llama/Llama-3.2-1B", "hf://meta-llama/Llama-3.2-1B", "/raid/models/hf/meta-llama-Llama-3.2-1B-"),
        (
            "hf://meta-llama/Llama-3.2-1B@abc",
            "hf://meta-llama/Llama-3.2-1B@abc",
            "/raid/models/hf/meta-llama-Llama-3.2-1B-abc-",
        ),
        ("s3://weights/llama", "s3://weights/llama", "/raid/models/s3/weights-llama-"),
        ("s3://weights@us-east-1/llama", "s3://weights/llama", "/raid/models/s3/weights-llama-"),
        ("s3://weights", "s3://weights", "/raid/models/s3/weights-"),
        ("gs://weights/llama", "gs://weights/llama", "/raid/models/gs/weights-llama-"),
        ("https://files.example/a.gguf", "https://files.example/a.gguf", "/raid/models/https/files.example-a.gguf-"),
    ],
)
def test_a_source_that_names_no_folder_gets_one_of_its_own(uri: str, url: str, path: str) -> None:
    model_storage = parse_storage(model(uri, "ClusterBaseModel"), SETTINGS)
    assert (model_storage.url, model_storage.root) == (url, "/raid/models")
    assert model_storage.path.startswith(path)
    assert len(model_storage.path) == len(path) + 8
    assert parse_storage(model(uri), SETTINGS).path == model_storage.path.replace("/raid/models/", "/raid/models/chat/")


@pytest.mark.parametrize("namespace", storage.FETCHED)
def test_a_namespace_that_is_named_like_a_source_has_no_folder_of_others(namespace: str) -> None:
    def owned(uri: str, **fields: str) -> dict[str, Any]:
        resource = model(uri, **fields)
        return {**resource, "metadata": {"name": "tiny", "namespace": namespace}}

    with pytest.raises(InvalidSpecError) as refused:
        parse_storage(owned("hf://acme/tiny", path=f"/raid/models/{namespace}/acme-tiny-0e39e610"), SETTINGS)
    assert refused.value.reason == "PathNotAllowed"
    assert f"/raid/models/{namespace}/{namespace}" in refused.value.message
    own = f"/raid/models/{namespace}/{namespace}/"
    assert parse_storage(owned("hf://acme/tiny", path=f"{own}x"), SETTINGS).path == f"{own}x"
    for uri in ("hf://acme/tiny", "s3://weights/llama"):
        assert parse_storage(owned(uri), SETTINGS).path.startswith(own)


def test_the_page_of_a_repository_is_the_repository() -> None:
    model_storage = parse_storage(model("https://huggingface.co/acme/tiny/tree/v2"), SETTINGS)
    assert (model_storage.scheme, model_storage.url) == ("hf", "hf://acme/tiny@v2")


def test_a_bucket_says_its_region_behind_its_name_or_in_parameters() -> None:
    assert parse_storage(model("s3://weights@us-east-1/llama"), SETTINGS).region == "us-east-1"
    assert (
        parse_storage(model("s3://weights/llama", parameters={"region": "eu-west-1"}), SETTINGS).region == "eu-west-1"
    )


def test_a_single_file_of_a_repository_or_server_keeps_its_name() -> None:
    assert parse_storage(model("hf://acme/tiny/q4/tiny.gguf"), SETTINGS).files == ("q4/tiny.gguf",)
    assert parse_storage(model("https://files.example/a.gguf?sig=x"), SETTINGS).stored_as == "a.gguf"


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/raid/models/llama", "/raid/models"),
        ("/raid/models/llama/", "/raid/models"),
        ("/raid/models/fast/llama", "/raid/models/fast"),
        ("/mnt/models/a/b", "/mnt/models"),
    ],
)
def test_a_path_below_a_folder_of_the_operators_is_taken(path: str, root: str) -> None:
    model_storage = parse_storage(model("hf://acme/tiny", "ClusterBaseModel", path=path), SETTINGS)
    assert (model_storage.root, model_storage.path) == (root, path.rstrip("/"))
    own = path.replace(root, f"{root}/chat", 1)
    assert parse_storage(model("hf://acme/tiny", path=own), SETTINGS).path == own.rstrip("/")


@pytest.mark.parametrize(
    "path",
    [
        "/raid/models",
        "/raid/models/../../etc",
        "/etc/kubernetes",
        "raid/models/x",
        "/raid/models-x/y",
        "/raid/models/./x",
        "/raid/models/a:b",
        "/raid/models/" + "x" * 600,
    ],
)
@pytest.mark.parametrize("uri", ["hf://acme/tiny", "local:///raid/models/x", "vendor://acme/x/y"])
def test_any_other_path_is_refused(uri: str, path: str) -> None:
    with pytest.raises(InvalidSpecError) as refused:
        parse_storage(model(uri, path=path), SETTINGS)
    assert refused.value.reason == "PathNotAllowed"


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("az://account/container/x", "SourceNotServed"),
        ("github://owner/repo@v1", "SourceNotServed"),
        ("oci://n/ns/b/bucket/o/prefix", "SourceNotServed"),
        ("ftp://files.example/x", "InvalidSource"),
        ("hf://", "InvalidSource"),
        ("hf://llama", "InvalidSource"),
        ("hf://datasets/x", "InvalidSource"),
        ("meta-llama/Llama-3.2-1B", "InvalidSource"),
        ("", "InvalidSource"),
        ("hf://a/b c", "InvalidSource"),
        ("hf://a/b\x00", "InvalidSource"),
        ("s3:///x", "InvalidSource"),
        ("s3://b/../x", "InvalidSource"),
        ("local://./models", "PathNotAllowed"),
        ("local://~/models", "PathNotAllowed"),
        ("http://169.254.169.254/x", "SourceNotAllowed"),
        ("pvc://", "InvalidSource"),
        ("pvc://UPPER/x", "InvalidSource"),
        ("pvc://claim/../x", "InvalidSource"),
        ("pvc://:claim/x", "InvalidSource"),
        ("pvc://other:claim/x", "ClaimOfOtherNamespace"),
        (None, "InvalidSpec"),
        (7, "InvalidSpec"),
    ],
)
def test_unknown_references_are_rejected_with_the_reason(uri: Any, reason: str) -> None:
    with pytest.raises(InvalidSpecError) as refused:
        parse_storage(model(uri), SETTINGS)
    assert refused.value.reason == reason
    assert refused.value.message.endswith(".")


@pytest.mark.parametrize("affinity", [7, {"requiredDuringSchedulingIgnoredDuringExecution": {}}])
def test_an_affinity_that_no_pod_may_have_is_refused(affinity: Any) -> None:
    with pytest.raises(InvalidSpecError, match="The storage cannot be read"):
        parse_storage(model("hf://acme/tiny", nodeAffinity=affinity), SETTINGS)


def test_a_local_folder_is_its_path_or_that_of_the_address() -> None:
    assert parse_storage(model("local:///raid/models/chat/x"), SETTINGS).path == "/raid/models/chat/x"
    model_storage = parse_storage(model("local:///elsewhere", path="/raid/models/chat/y"), SETTINGS)
    assert (model_storage.path, model_storage.url) == ("/raid/models/chat/y", "")


@pytest.mark.parametrize(
    ("uri", "kind", "namespace", "sub_path"),
    [
        ("pvc://weights/llama/3", "BaseModel", "chat", "llama/3"),
        ("pvc://chat:weights", "BaseModel", "chat", ""),
        ("pvc://weights/llama", "ClusterBaseModel", "ome", "llama"),
        ("pvc://ome:weights/llama", "FineTunedWeight", "ome", "llama"),
    ],
)
def test_a_claim_is_of_the_models_namespace_or_of_that_for_models_of_the_cluster(
    uri: str, kind: str, namespace: str, sub_path: str
) -> None:
    model_storage = parse_storage(model(uri, kind), SETTINGS)
    assert model_storage.claim is not None
    assert (model_storage.claim.namespace, model_storage.claim.name, model_storage.sub_path) == (
        namespace,
        "weights",
        sub_path,
    )
    assert model_storage.path == "/raid/models/tiny"


def test_only_the_source_and_the_path_determine_the_identity_of_a_load() -> None:
    one = parse_storage(model("hf://acme/tiny", path="/raid/models/chat/x"), SETTINGS).identity
    same = model("hf://acme/tiny", path="/raid/models/chat/x", nodeSelector={"a": "b"}, key="secret")
    assert parse_storage(same, SETTINGS).identity == one
    assert parse_storage(model("hf://acme/tiny@v2", path="/raid/models/chat/x"), SETTINGS).identity != one
    assert parse_storage(model("hf://acme/tiny", path="/raid/models/chat/y"), SETTINGS).identity != one


def test_pods_read_a_model_of_nodes_at_its_path_where_its_label_says_ready() -> None:
    resource = model("hf://acme/tiny", "ClusterBaseModel", path="/raid/models/x")
    resource["spec"] |= {"vendor": "acme", "modelFormat": {"name": "safetensors", "version": "1.0.0"}}
    mount = mount_of(resource, SETTINGS)
    assert (mount.path, mount.claim, mount.node_label) == ("/raid/models/x", "", "models.ome.io/clusterbasemodel.tiny")
    assert (mount.vendor, mount.category, mount.format_name, mount.format_version) == (
        "acme",
        "SMALL",
        "safetensors",
        "1.0.0",
    )


def test_pods_read_a_model_of_a_claim_on_any_node() -> None:
    mount = mount_of(model("pvc://weights/llama"), SETTINGS)
    assert (mount.claim, mount.sub_path, mount.node_label, mount.path) == ("weights", "llama", "", "/raid/models/tiny")


def test_of_a_vendors_model_there_may_be_nothing_to_mount() -> None:
    assert mount_of(model("vendor://acme/llm/x"), SETTINGS).path == ""
    assert isinstance(mount_of(model("vendor://acme/llm/x", path="/raid/models/chat/x"), SETTINGS), Mount)


def test_a_secret_in_an_address_is_not_revealed() -> None:
    with pytest.raises(InvalidSpecError) as refused:
        parse_storage(model("https://user:hunter2@"), SETTINGS)
    assert "hunter2" not in refused.value.message


def test_without_folders_of_the_operators_nothing_lies_on_nodes() -> None:
    with pytest.raises(InvalidSpecError, match="there is none"):
        parse_storage(model("hf://acme/tiny"), Settings(apis={"ome": {"modelRoots": []}}))


def test_a_use_has_no_character_that_parts_uses() -> None:
    assert " " not in storage.use_of("/raid/models/with space")
