"""The commands and manifests of the pages, in their order, on the test cluster.

A page becomes one script. Files that readers save are written where they stand; manifests, playbooks and inventories
that no command of the page uses are tried out by the API server, in check mode or by being read. The quick start of the
README goes through a whole installation; further commands that would (see WHOLE) are held against the playbooks by
tests/unit/docs/test_playbook_commands.py, and the scenarios molecule/site and upgrade run them. Each page runs all
its own commands, even if another page has run them.

What they print is compared with what the page shows. SLIPWAY_WRITE_OUTPUTS=1 writes it instead (see outputs.py).
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.cluster.cluster import built_image
from tests.ports import reserved_port

from . import outputs
from .pages import PAGES, ROOT, Block, blocks, to_run

SECONDS = 1500
"""For one page. The site playbook takes most of it."""

INSTALLATION = (("NodePort", "ClusterIP"), ("80:30080/TCP", "80/TCP"))
"""In what the test cluster's installation differs from one with the default settings, as kubectl shows it."""


class Place(NamedTuple):
    """The environment for a page: a separate namespace and model, and a free port of this machine."""

    namespace: str
    port: int

    def restored(self, output: str, page: str) -> str:
        """The output as a reader of the page has it."""
        pairs = [(ours, theirs) for theirs, ours in self.stand_ins().items() if theirs in page]
        pairs += [(self.namespace, "models"), *INSTALLATION]
        for ours, theirs in sorted(pairs, key=lambda pair: -len(pair[0])):
            output = output.replace(ours, theirs)
        return output

    def stand_ins(self) -> dict[str, str]:
        """What the pages say -> what this cluster has, and other tests on it bear."""
        return {
            "registry.example.com/ai/slipway/slipway:0.4.0": "slipway/slipway:0.4.0",
            "https://huggingface.co": "http://slipway-hub.slipway-system.svc",
            "images_delivery=registry": "images_delivery=none",
            "krypton-system": self.namespace,
            "qwen2-": f"{self.namespace}-",
            "smollm2-": f"{self.namespace}-",
            "docs-engine": f"{self.namespace}-engine",
            "my-model": f"{self.namespace}-my-model",
            "my-alias": f"{self.namespace}-my-alias",
            "my-sleeper": f"{self.namespace}-my-sleeper",
            "demo:1": "cpu:1",
            "namespace awx": f"namespace {self.namespace}-awx",
            "namespace/awx": f"namespace/{self.namespace}-awx",
            "awx:slipway": f"{self.namespace}-awx:slipway",
            "awx-slipway": f"{self.namespace}-awx-slipway",
            "slipway-devices": f"{self.namespace}-devices",
            "gateway-keys --namespace slipway-system": f"gateway-keys --namespace {self.namespace}",
            "team-keys --namespace slipway-system": f"team-keys --namespace {self.namespace}",
            "slipway-depot-catalog --namespace slipway-system": f"slipway-depot-catalog --namespace {self.namespace}",
            "namespace models": f"namespace {self.namespace}",
            "namespace: models": f"namespace: {self.namespace}",
            "/v1/models/models/": f"/v1/models/{self.namespace}/",
            "8081:80": f"{self.port}:80",
            "127.0.0.1:8081": f"127.0.0.1:{self.port}",
        }


def runs(page: Path) -> bool:
    """Whether anything of the page is tried here."""
    return any(to_run(block) or _is_tried(block) for block in blocks(page))


def _is_tried(block: Block) -> bool:
    return block.language == "yaml" and not {"settings", "variables", "elsewhere"} & set(block.marks)


@pytest.mark.timeout(SECONDS + 400)
@pytest.mark.parametrize("page", [page for page in PAGES if runs(page)], ids=lambda page: page.stem)
def test_the_commands_of_the_page_work(page: Path, place: Place, kubeconfig: str, tmp_path: Path) -> None:
    text = script(blocks(page))
    for placeholder, meant in place.stand_ins().items():
        text = text.replace(placeholder, meant)
    inventory = tmp_path / "inventory"
    write_inventory(inventory, place, built_image())
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "KUBECONFIG": kubeconfig,
        "K8S_AUTH_KUBECONFIG": kubeconfig,
        "ANSIBLE_INVENTORY": str(inventory),
        "ANSIBLE_COLLECTIONS_PATH": os.environ.get("ANSIBLE_COLLECTIONS_PATH", str(ROOT / ".venv/collections")),
        "ANSIBLE_NOCOLOR": "1",
        "HF_TOKEN": "hf_example",
        "API_KEY": "sk-example",
        "NAMESPACE": place.namespace,
        "NAME": place.namespace,
    }
    status, output = run(text, tmp_path, environment)
    assert status == 0, outputs.without_secrets(output)[-6000:]
    check_outputs(page, place, output)


def check_outputs(page: Path, place: Place, log: str) -> None:
    """Compares what a page shows with what its commands printed, after writing it with SLIPWAY_WRITE_OUTPUTS=1."""
    printed = outputs.captured(blocks(page), log)
    restored = {text: place.restored(output, page.read_text()) for text, output in printed.items()}
    if os.environ.get(outputs.WRITE) and restored:
        record = outputs.record_of(page)
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(outputs.render(restored))
        page.write_text(outputs.rewritten(page.read_text(), blocks(page), restored))
    assert "\n".join(outputs.faults(blocks(page), restored)) == ""


def script(page: list[Block]) -> str:
    """The page as a shell script. A line with ``+`` precedes the output of each command."""
    ran = "\n".join(command for block in page for command in to_run(block))
    lines = ["set -euo pipefail", "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT"]
    for block in page:
        step = f"printf '\\n+ %s\\n' {shlex.quote(block.name)}"
        lines += [line for statement in statements(block) for line in (step, statement)] or [step]
        if "file" in block.marks:
            lines.append(_saved(block.marks["file"], block.text))
        if _is_tried(block):
            lines.append(_tried(block, ran))
    return "\n".join(lines)


def statements(block: Block) -> Iterator[str]:
    """The commands to run, where those of a loop or a function are one."""
    pending = ""
    for command in to_run(block):
        pending += f"{command}\n"
        parsed = subprocess.run(["bash", "-n"], input=pending, capture_output=True, text=True, timeout=60, check=False)
        if parsed.returncode == 0:
            yield pending
            pending = ""
    if pending:
        yield pending


def _saved(name: str, text: str) -> str:
    return f"cat > {shlex.quote(name)} << 'END OF FILE'\n{text}END OF FILE"


def _tried(block: Block, ran: str) -> str:
    name = block.marks.get("file", "block.yml")
    if name in ran:
        return ""
    first = yaml.safe_load(block.text.split("\n---\n")[0])
    if isinstance(first, list):
        attempt = f"ansible-playbook --check {name}"
    elif "kind" in first:
        attempt = f"kubectl apply --dry-run=server -f {name}"
    else:
        attempt = f"ansible-inventory --inventory {name} --list"
    return f"{_saved(name, block.text)}\n{attempt}"


def run(text: str, folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Runs the script in a separate process group, and ends the group with it. Returns exit status and output."""
    log = folder / "output"
    with log.open("w") as output:
        started = subprocess.Popen(
            ["bash", "-c", text], cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            started.wait(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            output.write(f"\nstopped after {SECONDS} s\n")
        finally:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGTERM)
    return started.wait(timeout=120), log.read_text()


def write_inventory(folder: Path, place: Place, build: str) -> None:
    """What a reader has in an inventory: here the test cluster's variables, so that an installation changes nothing."""
    text = (ROOT / "tests/cluster/site.yml").read_text().replace("{{ playbook_dir }}/..", str(ROOT))
    variables = yaml.safe_load(text) | {"models_namespace": place.namespace, "slipway_build": build}
    folder.mkdir()
    (folder / "hosts.yml").write_text("all: {}\n")
    (folder / "group_vars").mkdir()
    (folder / "group_vars/all.yml").write_text(yaml.safe_dump(variables))


@pytest.fixture
def place(kubeconfig: str) -> Iterator[Place]:
    """A place with a model that answers, for the pages that look at one. It goes afterwards."""
    docs_place = Place(f"docs-{uuid.uuid4().hex[:6]}", reserved_port())
    manifests = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": docs_place.namespace}},
        {
            "apiVersion": "krypton.ai/v1alpha1",
            "kind": "Model",
            "metadata": {"name": docs_place.namespace, "namespace": docs_place.namespace},
            "spec": {"source": {"huggingface": "acme/tiny", "file": "tiny.gguf"}},
        },
    ]
    kubectl(kubeconfig, "apply", "-f", "-", stdin=yaml.safe_dump_all(manifests))
    try:
        kubectl(
            kubeconfig,
            "wait",
            "-n",
            docs_place.namespace,
            f"models.krypton.ai/{docs_place.namespace}",
            "--for=condition=Available",
            "--timeout=240s",
        )
        yield docs_place
    finally:
        namespaces = [docs_place.namespace, f"{docs_place.namespace}-awx", f"{docs_place.namespace}-devices"]
        binding = f"{docs_place.namespace}-awx-slipway"
        kubectl(kubeconfig, "delete", "namespace", *namespaces, "--ignore-not-found", "--wait=false")
        kubectl(kubeconfig, "delete", "clusterrolebinding", binding, "--ignore-not-found")


def kubectl(kubeconfig: str, *arguments: str, stdin: str = "") -> None:
    command = ["kubectl", "--kubeconfig", kubeconfig, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
