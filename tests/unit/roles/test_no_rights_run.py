"""Every playbook, run by an account that may do nothing: it ends with a sentence about that, and with no exception of
Python and no headers of HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .api_server import ApiHandler, ApiServer, discovery
from .cluster_api import KINDS
from .role_run import ROOT, run_play

pytestmark = [pytest.mark.plays, pytest.mark.timeout(900)]

ACCOUNT = "system:serviceaccount:ci:no-rights"
RAW = re.compile(r"HTTPHeaderDict|Traceback|HTTP response|traceback|ApiException|Exception '")
ELSEWHERE = {
    "demo": "creates its own cluster, with all rights in it",
    "local": "makes a cluster, and speaks to none",
    "gpu_nodes": "prepares machines; what it asks of the cluster is what drain_node asks",
}
"""Playbook -> why it is not run here."""
MESSAGES = {
    "drain_node": r"cannot get resource .nodes. in API group .. at the cluster scope",
    "models": r"cannot list resource",
    "site": r"The account is not allowed to|cannot",
    "status": r"cannot list resource|may not",
    "uninstall": r"The account is not allowed to|cannot",
    "upgrade": r"The account is not allowed to|cannot",
    "usage": r"The account is not allowed to|cannot",
}
"""Playbook -> what its output says of it."""


class Handler(ApiHandler):
    """Every account can read the list of kinds, and nothing else."""

    def do_GET(self) -> None:
        document = discovery(self.place, KINDS)
        if document is not None:
            self.send(200, document)
        else:
            self._forbid("get" if self.place.rpartition("/")[2] not in PLURALS else "list")

    def do_PATCH(self) -> None:
        self.body()
        self._forbid("patch")

    def do_POST(self) -> None:
        body = self.body()
        if self.place.endswith("selfsubjectaccessreviews"):
            self.send(201, {**body, "metadata": {}, "status": {"allowed": False}})
        else:
            self._forbid("create")

    def do_DELETE(self) -> None:
        self.body()
        self._forbid("delete")

    def _forbid(self, verb: str) -> None:
        parts = self.place.split("/")
        group = parts[1] if parts[0] == "apis" else ""
        plural = next((part for part in parts[::-1] if part in PLURALS), parts[-1])
        text = f'{plural} is forbidden: User "{ACCOUNT}" cannot {verb} resource "{plural}" in API group "{group}"'
        self.send(
            403,
            {
                "kind": "Status",
                "status": "Failure",
                "reason": "Forbidden",
                "message": f"{text} at the cluster scope",
                "details": {"group": group, "kind": plural},
                "code": 403,
            },
        )


PLURALS = {kind.plural for kind in KINDS} | {"models", "inferenceservices"}


@pytest.fixture
def api() -> Iterator[ApiServer]:
    server = ApiServer(Handler)
    yield server
    server.stop()


def test_every_playbook_is_among_them() -> None:
    assert {path.stem for path in (ROOT / "playbooks").glob("*.yml")} == {*MESSAGES, *ELSEWHERE}


@pytest.mark.parametrize("playbook", MESSAGES)
def test_missing_rights_are_reported_in_words(playbook: str, tmp_path: Path, api: ApiServer) -> None:
    hosts = {"gpu_nodes": {"hosts": {"node-1": {"ansible_connection": "local"}}}} if playbook == "drain_node" else {}
    (tmp_path / "inventory.json").write_text(json.dumps({"all": {"children": hosts}}))
    cluster = {"K8S_AUTH_HOST": api.url, "K8S_AUTH_API_KEY": "no-rights"}
    variables = {"slipway_environment": cluster, "models_list": [{"name": "a", "spec": {"source": {}}}]}
    output = run_play(
        tmp_path,
        {"import_playbook": f"slipway.inference.{playbook}"},
        *("--extra-vars", json.dumps(variables)),
        inventory="inventory.json",
        failing=playbook != "status",
    )
    raw = RAW.search(output)
    assert raw is None, output[max(0, raw.start() - 1000) : raw.end() + 300]
    assert re.search(MESSAGES[playbook], output), output
