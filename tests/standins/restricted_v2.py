"""Stands in for OpenShift's admission of pods by the SecurityContextConstraints ``restricted-v2``.

That one refuses what it does not allow, and fills in what a pod leaves open: the user and the group come from the range
of the namespace, in which every namespace has its own.

As a program it is a webhook for the creation of pods: restricted_v2.py CERTIFICATE KEY PORT
"""

from __future__ import annotations

import base64
import copy
import json
import ssl
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Object = dict[str, Any]
FIRST, SIZE = 1_000_650_000, 10_000
"""Of a namespace's users and groups."""
VOLUMES = frozenset(
    ("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret")
)
SECCOMP = "RuntimeDefault"


def admitted(spec: Object) -> tuple[Object, list[str]]:
    """A pod's spec as it is let in, and what is not allowed of it: with any of that it is not let in."""
    filled = copy.deepcopy(spec)
    pod = filled.setdefault("securityContext", {})
    pod.setdefault("fsGroup", FIRST)
    pod.setdefault("seccompProfile", {"type": SECCOMP})
    for container in _containers(filled):
        own = container.setdefault("securityContext", {})
        if "runAsUser" not in pod:
            own.setdefault("runAsUser", FIRST)
        own.setdefault("allowPrivilegeEscalation", False)
        dropped = own.setdefault("capabilities", {}).setdefault("drop", [])
        own["capabilities"]["drop"] = [*dropped, *({"ALL"} - set(dropped))]
    return filled, list(_faults(filled))


def _faults(spec: Object) -> Iterator[str]:
    pod = spec["securityContext"]
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield f"{field} is not allowed"
    if not _mine(pod["fsGroup"]):
        yield f"fsGroup {pod['fsGroup']} is not in the range of the namespace"
    if pod["seccompProfile"].get("type") != SECCOMP:
        yield f"seccompProfile {pod['seccompProfile']} is not allowed"
    for volume in spec.get("volumes") or ():
        for kind in set(volume) - {"name"} - VOLUMES:
            yield f"volume {volume['name']}: {kind} is not allowed"
    for container in _containers(spec):
        for fault in _faults_of(container, pod):
            yield f"container {container['name']}: {fault}"


def _faults_of(container: Object, pod: Object) -> Iterator[str]:
    own = container["securityContext"]
    user = own.get("runAsUser", pod.get("runAsUser"))
    if not _mine(user):
        yield f"runAsUser {user} is not in the range of the namespace"
    if own.get("privileged") or own["allowPrivilegeEscalation"]:
        yield "more privileges are not allowed"
    added = set(own["capabilities"].get("add") or ()) - {"NET_BIND_SERVICE"}
    if added:
        yield f"capabilities {sorted(added)} are not allowed"
    if own.get("seccompProfile", {"type": SECCOMP}).get("type") != SECCOMP:
        yield f"seccompProfile {own['seccompProfile']} is not allowed"
    for port in container.get("ports") or ():
        if port.get("hostPort"):
            yield f"hostPort {port['hostPort']} is not allowed"


def _containers(spec: Object) -> Iterator[Object]:
    yield from spec.get("initContainers") or ()
    yield from spec["containers"]


def _mine(number: int) -> bool:
    return FIRST <= number < FIRST + SIZE


def reviewed(review: Object) -> Object:
    """The answer to an AdmissionReview."""
    request = review["request"]
    spec, faults = admitted(request["object"]["spec"])
    answer: Object = {"uid": request["uid"], "allowed": not faults}
    if faults:
        answer["status"] = {"code": 403, "message": f"restricted-v2 does not let it in: {'; '.join(faults)}"}
    else:
        patch = [{"op": "replace", "path": "/spec", "value": spec}]
        answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
    return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send(b"ok")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._send(json.dumps(reviewed(json.loads(body))).encode())

    def _send(self, data: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main(certificate: str, key: str, port: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("", int(port)), _Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
