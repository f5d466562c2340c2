"""S4: the tenant pushes into the registry, reads what others published, or claims all of the storage."""

from __future__ import annotations

import base64
import json
from typing import Any

from tests.cluster.cluster import PATIENCE, wait

from .campaign import Attack
from .proofs import require_no_right
from .scene import Scene
from .second_tenant import DECKHOUSE

DEPOT, REGISTRY = "https://slipway-depot.slipway-system.svc:8443", "https://slipway-registry.slipway-system.svc:5000"
TOKEN_SCRIPT = """
import base64, json, ssl, sys, urllib.error, urllib.parse, urllib.request
depot, registry, scope, *requests = sys.argv[1:]
context = ssl._create_unverified_context()
def send(method, url, token, body=None):
    request = urllib.request.Request(url, body, {"Authorization": "Bearer " + token}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            return answer.status, answer.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode("utf-8", "replace")
account = open("/token/token").read()
query = urllib.parse.urlencode({"service": "slipway-registry", "scope": scope})
status, text = send("GET", depot + "/token?" + query, account)
token = json.loads(text).get("token", "") if status == 200 else ""
claims = token.split(".")[1] + "==" if token else "e30="
access = json.loads(base64.urlsafe_b64decode(claims)).get("access") or []
answers = [send(*one.split(" ", 1)[:1], registry + one.split(" ", 1)[1], token, b"" if one[0] == "P" else None)
           for one in requests]
print(json.dumps({"status": status, "text": text if status != 200 else "", "access": access, "answers": answers}))
"""
"""A token for a scope by the pod's account, and what the registry answers to requests with it."""
UPLOAD_SCRIPT = """
import json, ssl, sys, urllib.error, urllib.request
url, token, offset, length = sys.argv[1:]
headers = {"Authorization": "Bearer " + token, "Tus-Resumable": "1.0.0", "Upload-Offset": offset,
           "Upload-Length": length, "Content-Type": "application/offset+octet-stream"}
request = urllib.request.Request(url, b"GGUF" + bytes(64), headers, method="PATCH")
try:
    with urllib.request.urlopen(request, timeout=120, context=ssl._create_unverified_context()) as answer:
        print(json.dumps([answer.status, answer.read().decode()]))
except urllib.error.HTTPError as error:
    print(json.dumps([error.code, error.read().decode("utf-8", "replace")]))
"""
PULL, ALL = ["pull"], "pull,push,delete"
CAPACITY, SHARE = 3 << 30, 90
"""`depot_capacity_limit` of the test cluster, and the default of `depot_namespace_share`."""


def _ask(scene: Scene, repository: str, *requests: str) -> tuple[list[Any], list[tuple[int, str]]]:
    """What the tenant's token permits, and the registry's answers to the requests."""
    arguments = (DEPOT, REGISTRY, f"repository:{repository}:{ALL}", *requests)
    document = json.loads(scene.run_in_pod(TOKEN_SCRIPT, *arguments))
    assert document["status"] == 200, f"the depot gives the tenant no token: {document}"
    return document["access"], [(status, text) for status, text in document["answers"]]


def _require_no_push(scene: Scene, repository: str) -> None:
    """The token permits at most to pull, and the registry takes nothing with it."""
    start, put = f"POST /v2/{repository}/blobs/uploads/", f"PUT /v2/{repository}/manifests/latest"
    remove = f"DELETE /v2/{repository}/manifests/sha256:{'0' * 64}"
    access, answers = _ask(scene, repository, start, put, remove)
    assert [action for one in access for action in one["actions"] if action not in PULL] == [], access
    assert [status for status, _text in answers] == [401, 401, 401], answers


def push_without_a_model(scene: Scene, turn: int) -> None:
    _require_no_push(scene, f"namespaced/{scene.home}/none-{turn}/11111111-2222-3333-4444-{turn:012}")


def push_beside_the_publisher(scene: Scene, turn: int) -> None:
    """The Model exists and is to be published. Only the publisher's pod may push."""
    name = f"pushed-{turn}"
    spec = {"source": {"url": f"https://huggingface.co/mallory/none-{turn}"}}
    model = scene.create(DECKHOUSE, scene.home, name, {"spec": spec})
    _require_no_push(scene, f"namespaced/{scene.home}/{name}/{model['metadata']['uid']}")
    scene.tenant.delete(DECKHOUSE, scene.home, name)


def push_into_the_repository_of_another_model(scene: Scene, _turn: int) -> None:
    _require_no_push(scene, scene.second.repository)


def pull_what_another_tenant_published(scene: Scene, _turn: int) -> None:
    model = scene.cluster.get(DECKHOUSE, scene.second.namespace, scene.second.name)
    assert model
    digest, repository = model["status"]["artifact"]["digest"], scene.second.repository
    access, answers = _ask(scene, repository, f"GET /v2/{repository}/manifests/{digest}", "GET /v2/_catalog")
    assert access == []
    assert [status for status, _text in answers] == [401, 401], answers


def claim_all_of_the_storage(scene: Scene, turn: int) -> None:
    """By the announced length of an upload that never comes. A part is left to others, who publish meanwhile."""
    if turn == 0:
        scene.create(DECKHOUSE, scene.home, "claims-all", {"spec": {"source": {"upload": {}}}})
    share = CAPACITY * SHARE // 100
    assert _announce(scene, "claims-all", share + 1)[0] in (409, 413, 507), "more than the share was accepted"
    status, text = _announce(scene, "claims-all", share - (64 << 20))
    assert status in (204, 409), f"the attack could not claim its share: {status} {text}"
    scene.second.publish_a_model()


def _announce(scene: Scene, name: str, length: int) -> tuple[int, str]:
    """Some bytes at the begin of an upload of such a length. 409: they are there already."""
    secret = wait("the upload's Secret", PATIENCE, lambda: scene.tenant.get("Secret", scene.home, f"{name}-upload"))
    assert secret
    url, token = (base64.b64decode(secret["data"][field]).decode() for field in ("url", "token"))
    status, text = json.loads(scene.run_in_pod(UPLOAD_SCRIPT, url, token, "0", str(length)))
    return status, text


def forge_the_status_of_a_model(scene: Scene, turn: int) -> None:
    """A size, and that it is published: the status counts, and is not the author's."""
    name = f"status-{turn}"
    scene.create(DECKHOUSE, scene.home, name, {"spec": {"source": {"catalog": {"name": "none"}}}})
    path = f"/apis/ai.deckhouse.io/v1alpha1/namespaces/{scene.home}/models/{name}/status"
    body = {"status": {"phase": "Publishing", "artifact": {"sizeBytes": 1 << 60}}}
    answer = scene.tenant.send("PATCH", path, body, "application/merge-patch+json")
    require_no_right(answer, "patch", "models/status")
    scene.tenant.delete(DECKHOUSE, scene.home, name)


ATTACKS: list[Attack[Scene]] = [
    Attack("S4", push_without_a_model),
    Attack("S4", push_beside_the_publisher),
    Attack("S4", push_into_the_repository_of_another_model),
    Attack("S4", pull_what_another_tenant_published),
    Attack("S4", claim_all_of_the_storage),
    Attack("S4", forge_the_status_of_a_model),
]
