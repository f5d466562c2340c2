"""Failures are reported with a reason and a fix, and a model recovers automatically once the problem is fixed."""

from __future__ import annotations

from .cluster import PATIENCE, SYSTEM, Cluster, condition, container, holds, unique, wait


def test_an_image_that_cannot_be_pulled(cluster: Cluster, namespace: str) -> None:
    name = unique("image")
    cluster.make_model(namespace, name, image="registry.invalid/no/such:image")
    message = cluster.wait_failed(namespace, name, "ImagePullBackOff")
    assert "registry.invalid/no/such:image" in message
    assert cluster.model(namespace, name)["status"]["phase"] == "Failed"
    cluster.change_model(namespace, name, image="")
    cluster.wait_ready(namespace, name)


def test_a_spec_that_only_the_operator_can_allow_is_refused_while_the_last_one_serves(
    cluster: Cluster, namespace: str
) -> None:
    name = unique("allowed")
    cluster.make_model(namespace, name)
    cluster.wait_ready(namespace, name)
    cluster.change_model(namespace, name, serviceAccountName="foreign")
    refused = cluster.wait_condition(namespace, name, "Accepted", "False", "NotAllowed")
    assert "authors.serviceAccounts" in refused["message"]
    available = condition(cluster.model(namespace, name), "Available")
    assert available["status"] == "True", "what the last good spec made serves on"
    cluster.change_model(namespace, name, serviceAccountName="")
    cluster.wait_condition(namespace, name, "Accepted", "True", "Valid")


def test_a_model_in_the_system_namespace(cluster: Cluster) -> None:
    name = unique("system")
    cluster.make_model(SYSTEM, name)
    try:
        refused = cluster.wait_condition(SYSTEM, name, "Accepted", "False", "NotAllowed")
        assert "authors.systemNamespace" in refused["message"]
        assert cluster.children(SYSTEM, name) == {}
    finally:
        cluster.delete("Model", SYSTEM, name)
        cluster.wait_gone("Model", SYSTEM, name)


def test_a_file_that_the_repository_lacks(cluster: Cluster, namespace: str) -> None:
    name = unique("file")
    cluster.make_model(namespace, name, source={"huggingface": "acme/tiny", "file": "no-such.gguf"})
    message = cluster.wait_failed(namespace, name, "DownloadFailed")
    assert message.startswith("acme/tiny has no file 'no-such.gguf'. ")
    assert " tiny.gguf" in message, "the files that exist help to fix it"
    cluster.change_model(namespace, name, source={"huggingface": "acme/tiny", "file": "tiny.gguf"})
    cluster.wait_ready(namespace, name)


def test_a_repository_that_does_not_exist(cluster: Cluster, namespace: str) -> None:
    name = unique("repository")
    cluster.make_model(namespace, name, source={"huggingface": "acme/no-such", "file": "tiny.gguf"})
    assert "repository" in cluster.wait_failed(namespace, name, "DownloadFailed")


def test_a_crash_loop_is_reported_once_with_its_last_log_lines(cluster: Cluster, namespace: str) -> None:
    name = unique("crash")
    cluster.make_model(namespace, name, args=["--lora", "/no/such/adapter.gguf"])
    message = cluster.wait_failed(namespace, name, "FileNotFound")
    assert "/no/such/adapter.gguf" in message

    def restarts() -> int:
        statuses = [pod["status"].get("containerStatuses", []) for pod in cluster.pods(namespace, name)]
        return max((status["restartCount"] for pod_statuses in statuses for status in pod_statuses), default=0)

    wait("it was started again", PATIENCE, restarts, lambda count: count >= 2)
    assert cluster.model(namespace, name)["status"]["phase"] == "Failed", "a new attempt is no recovery"
    wait("the failure is an Event", PATIENCE, lambda: failures(cluster, namespace, name))
    assert len(failures(cluster, namespace, name)) == 1
    cluster.change_model(namespace, name, args=None)
    cluster.wait_ready(namespace, name)


def failures(cluster: Cluster, namespace: str, name: str) -> list[str]:
    return [event["message"] for event in cluster.events(namespace, name) if event["reason"] == "FileNotFound"]


def test_an_argument_that_the_engine_does_not_know(cluster: Cluster, namespace: str) -> None:
    name = unique("argument")
    cluster.make_model(namespace, name, args=["--no-such-flag"])
    assert "--no-such-flag" in cluster.wait_failed(namespace, name, "InvalidArgument")


def test_a_pod_that_no_node_can_take(cluster: Cluster, namespace: str) -> None:
    name = unique("unschedulable")
    cluster.make_model(namespace, name, resources={"requests": {"cpu": "900"}})
    assert "Insufficient cpu" in cluster.wait_failed(namespace, name, "Unschedulable")
    cluster.change_model(namespace, name, resources=None)
    cluster.wait_ready(namespace, name)


def test_a_start_that_takes_longer_than_its_timeout(cluster: Cluster, namespace: str) -> None:
    name = unique("startup")
    # The engine runs, but its health check is at another path. The controller does not read Secrets, so it cannot know.
    metadata = {"name": name, "namespace": namespace}
    cluster.create({"kind": "Secret", "metadata": metadata, "stringData": {"LLAMA_ARG_API_PREFIX": "/elsewhere"}})
    cluster.make_model(namespace, name, startupTimeout="5s", envFrom=[{"secretRef": {"name": name}}])
    assert "5 s" in cluster.wait_failed(namespace, name, "StartupTimeout")
    cluster.change_model(namespace, name, envFrom=None, startupTimeout=None)
    cluster.wait_ready(namespace, name)


def test_more_memory_than_the_limit(cluster: Cluster, namespace: str) -> None:
    name = unique("memory")
    # Enough to start a container, but too little for a context of this size.
    cluster.make_model(namespace, name, args=["--ctx-size", "262144"], resources={"limits": {"memory": "64Mi"}})
    assert "memory than its limit" in cluster.wait_failed(namespace, name, "OOMKilled")
    cluster.change_model(namespace, name, args=None, resources=None)
    cluster.wait_ready(namespace, name)


def test_a_secret_that_is_not_there_yet(cluster: Cluster, namespace: str) -> None:
    name = unique("secret")
    cluster.make_model(namespace, name, envFrom=[{"secretRef": {"name": "comes-later"}}])
    assert "comes-later" in cluster.wait_failed(namespace, name, "SecretNotFound")
    cluster.create({"kind": "Secret", "metadata": {"name": "comes-later", "namespace": namespace}})
    cluster.wait_ready(namespace, name)


def test_a_quota_that_leaves_no_room(cluster: Cluster, namespace: str) -> None:
    name = unique("quota")
    quota = {"kind": "ResourceQuota", "metadata": {"name": "none", "namespace": namespace}}
    cluster.create(quota | {"spec": {"hard": {"pods": "0"}}})
    wait(
        "the quota counts",
        PATIENCE,
        lambda: cluster.get("ResourceQuota", namespace, "none"),
        lambda live_quota: bool((live_quota or {}).get("status")),
    )
    cluster.make_model(namespace, name)
    assert "quota" in cluster.wait_failed(namespace, name, "PodsRejected")
    cluster.delete("ResourceQuota", namespace, "none")
    cluster.wait_ready(namespace, name)


def test_an_argument_that_is_not_the_users_to_set(cluster: Cluster, namespace: str) -> None:
    name = unique("owned")
    cluster.make_model(namespace, name)
    cluster.wait_ready(namespace, name)
    before = container(cluster.children(namespace, name)["Deployment"])["args"]

    def serves() -> bool:
        args = container(cluster.children(namespace, name)["Deployment"])["args"]
        return args == before and condition(cluster.model(namespace, name), "Available").get("status") == "True"

    for arguments, flag in ((["--host=127.0.0.1"], "--host"), (["--alias", "x"], "--alias"), (["-hf", "a/b"], "-hf")):
        cluster.change_model(namespace, name, args=arguments)
        refusal = cluster.wait_condition(namespace, name, "Accepted", "False", "InvalidSpec")
        assert flag in refusal["message"]
        holds("the last good children stay and answer", 1, serves)
    cluster.change_model(namespace, name, args=None)
    cluster.wait_ready(namespace, name)


def test_a_second_spec_that_fails_leaves_the_first_one_serving(cluster: Cluster, namespace: str) -> None:
    name = unique("second")
    cluster.make_model(namespace, name)
    cluster.wait_ready(namespace, name)
    cluster.change_model(namespace, name, args=["--no-such-flag"])
    cluster.wait_failed(namespace, name, "InvalidArgument")
    model = cluster.model(namespace, name)
    assert model["status"]["phase"] == "Ready"
    assert condition(model, "Available")["status"] == "True"
    cluster.change_model(namespace, name, args=None)
    cluster.wait_ready(namespace, name)
