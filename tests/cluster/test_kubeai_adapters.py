"""Adapters of a Model: answered by the pods that have them, added, replaced and taken away without a lost request."""

from __future__ import annotations

import pytest

from .cluster import PATIENCE, Object, condition, observed, unique, wait
from .kubeai import KubeAI, ask, chat, listed
from .load import Load

ONE, TWO = {"name": "wiki", "url": "hf://acme/adapter-one"}, {"name": "code", "url": "hf://acme/adapter-two"}


def loaded(model: Object) -> bool:
    return observed(model) and condition(model, "AdaptersLoaded").get("status") == "True"


def wait_loaded(kubeai: KubeAI, namespace: str, name: str) -> Object:
    return wait("adapters are loaded", PATIENCE, lambda: kubeai.model(namespace, name), loaded, kubeai._say)


def test_adapters_are_loaded_replaced_and_unloaded(kubeai: KubeAI, free_namespace: str, gateway_url: str) -> None:
    name = unique("lora")
    wiki, code = f"{name}_wiki", f"{name}_code"
    kubeai.make_model(free_namespace, name, minReplicas=2, maxReplicas=2, adapters=[ONE, TWO])
    kubeai.wait_routed(free_namespace, name, wiki, code)
    kubeai.wait_ready(free_namespace, name)
    # Sent while it may still be on its way, answered once a pod has it.
    first = chat(gateway_url, wiki)
    assert first.status == 200, first.body
    wait_loaded(kubeai, free_namespace, name)
    marks = {model: chat(gateway_url, model).words[1] for model in (name, wiki, code)}
    assert marks[name] == "base"
    assert len(set(marks.values())) == 3
    for pod in kubeai.pods(free_namespace, name):
        assert {"adapter.kubeai.org/wiki", "adapter.kubeai.org/code"} <= pod["metadata"]["labels"].keys()

    before = {pod["metadata"]["uid"] for pod in kubeai.pods(free_namespace, name)}
    with Load(gateway_url, wiki) as load:
        kubeai.change_model(free_namespace, name, adapters=[{**ONE, "url": TWO["url"]}, TWO])
        wait_loaded(kubeai, free_namespace, name)
        replaced = {chat(gateway_url, wiki).words[1] for _request in range(8)}
        load.more(10)
    assert load.failures == []
    assert replaced == {marks[code]}

    kubeai.change_model(free_namespace, name, adapters=[TWO])
    kubeai.wait_unrouted(wiki)
    wait(
        "no gateway answers for it",
        PATIENCE,
        lambda: [chat(gateway_url, wiki).status for _request in range(6)],
        lambda statuses: set(statuses) == {404},
    )
    assert wiki not in listed(gateway_url)
    assert chat(gateway_url, code).words[1] == marks[code]
    wait_loaded(kubeai, free_namespace, name)

    def labelled() -> list[str]:
        label_sets = [pod["metadata"]["labels"] for pod in kubeai.pods(free_namespace, name)]
        return [label for labels in label_sets for label in labels if label == "adapter.kubeai.org/wiki"]

    wait("no pod has its label", PATIENCE, labelled, lambda labels: not labels)
    assert {pod["metadata"]["uid"] for pod in kubeai.pods(free_namespace, name)} == before


def test_an_adapter_that_is_unavailable_is_reported_and_the_others_serve(
    kubeai: KubeAI, free_namespace: str, gateway_url: str
) -> None:
    name = unique("missing")
    nowhere = {"name": "nowhere", "url": "hf://acme/no-such-adapter"}
    kubeai.make_model(free_namespace, name, adapters=[ONE, nowhere])
    failure = kubeai.wait_condition(free_namespace, name, "AdaptersLoaded", "False", "AdapterFailed")
    assert "nowhere" in failure["message"]
    assert chat(gateway_url, f"{name}_wiki").status == 200
    assert chat(gateway_url, name).words[1] == "base"


def test_a_model_used_by_its_adapter_alone_starts_from_none_and_keeps_its_replicas(
    kubeai: KubeAI, free_namespace: str, gateway_url: str
) -> None:
    name = unique("only")
    kubeai.make_model(
        free_namespace,
        name,
        minReplicas=0,
        maxReplicas=2,
        targetRequests=1,
        scaleDownDelaySeconds=1,
        adapters=[ONE],
        env={"STANDIN_DECODE_SECONDS": "0.3"},
    )
    kubeai.wait_ready(free_namespace, name)
    kubeai.wait_routed(free_namespace, f"{name}_wiki")
    assert chat(gateway_url, f"{name}_wiki").words[1].startswith("lora-")
    with Load(gateway_url, f"{name}_wiki", clients=3) as load:
        kubeai.wait_replicas(free_namespace, name, 2)
        load.more(5)
    assert load.failures == []


@pytest.mark.parametrize("path", ["load_lora_adapter", "unload_lora_adapter"])
def test_clients_cannot_load_adapters(gateway_url: str, path: str) -> None:
    assert ask(f"{gateway_url}/v1/{path}", {"lora_name": "mine", "lora_path": "/tmp"}).status == 404
