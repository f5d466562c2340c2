"""A model and the services over it by one task of Ansible, as a person writes it (inference_services.yml)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from .cluster import unique
from .kubeai import chat
from .llmkube import MODEL, SERVICE, LLMKube

ROOT = Path(__file__).parents[2]


def play(llmkube: LLMKube, namespace: str, name: str, *arguments: str, fails: bool = False) -> tuple[str, str]:
    """What the playbook says, and its recap."""
    variables = {"tests_namespace": namespace, "tests_name": name}
    command = ["ansible-playbook", "tests/cluster/inference_services.yml", "-e", json.dumps(variables), *arguments]
    environment = os.environ | {"K8S_AUTH_KUBECONFIG": llmkube.kubeconfig}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    [recap] = [line for line in done.stdout.splitlines() if line.startswith("localhost") and "changed=" in line]
    return done.stdout, recap


def test_one_task_registers_a_model_and_its_services(
    llmkube: LLMKube, llmkube_namespace: str, gateway_url: str
) -> None:
    name = unique("task")
    assert "changed=1" in play(llmkube, llmkube_namespace, name, "--check", "--diff")[1]
    assert llmkube.list(MODEL, llmkube_namespace) == llmkube.list(SERVICE, llmkube_namespace) == []
    assert "changed=1" in play(llmkube, llmkube_namespace, name)[1]
    llmkube.wait_routed(llmkube_namespace, f"{name}-one", f"{name}-two")
    assert chat(gateway_url, f"{name}-one").status == chat(gateway_url, f"{name}-two").status == 200
    assert "changed=0" in play(llmkube, llmkube_namespace, name)[1]
    assert "changed=0" in play(llmkube, llmkube_namespace, name, "--check")[1]

    output, recap = play(llmkube, llmkube_namespace, name, "-e", "tests_context_size=2048", "--check", "--diff")
    assert "changed=1" in recap
    assert "contextSize: 2048" in output
    assert "changed=1" in play(llmkube, llmkube_namespace, name, "-e", "tests_context_size=2048")[1]
    [pod] = llmkube.pods(llmkube_namespace, f"{name}-one")
    assert "--ctx-size 2048" in " ".join(pod["spec"]["containers"][0]["args"])
    # The task fails with the reason as soon as a service cannot start, long before its timeout.
    wrong = json.dumps({"tests_context_size": 2048, "tests_extra_args": ["--no-such-flag"]})
    output, _recap = play(llmkube, llmkube_namespace, name, "-e", wrong, fails=True)
    assert "no-such-flag" in output
    assert "changed=1" in play(llmkube, llmkube_namespace, name, "-e", "tests_state=absent")[1]
    assert llmkube.list(MODEL, llmkube_namespace) == llmkube.list(SERVICE, llmkube_namespace) == []
    assert llmkube.files(llmkube_namespace) == []
    assert "changed=0" in play(llmkube, llmkube_namespace, name, "-e", "tests_state=absent")[1]
