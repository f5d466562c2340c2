# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""The upload of a model: wait for its session, send the missing bytes, and wait until it is published.

One time limit applies to all of this, regardless of the depot. The digests of stored pieces are compared with the file,
so that two different files are never combined.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.slipway.inference.plugins.module_utils._apis import Kind
from ansible_collections.slipway.inference.plugins.module_utils._client import Backoff, Client, Object, Request
from ansible_collections.slipway.inference.plugins.module_utils._content import Content
from ansible_collections.slipway.inference.plugins.module_utils._depot import Endpoint, State, refusal
from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError

SLICE = 256 << 20
"""Number of bytes in one request."""
LOOK_SECONDS = 2.0
API_SECONDS = 60
MODEL = Kind("ai.deckhouse.io", "v1alpha1", "Model", "models")
CLUSTER_MODEL = Kind("ai.deckhouse.io", "v1alpha1", "ClusterModel", "clustermodels", namespaced=False)
SECRET = Kind("", "v1", "Secret", "secrets")
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
AUTHORITY = "slipway-depot-ca"
UPLOADED = "slipway.inference/uploaded"
# Phases in which the controller waits for an upload, and in which nothing more must be uploaded.
BEFORE, AFTER = frozenset({"", "Pending", "WaitForUpload"}), frozenset({"Publishing", "Ready"})


@dataclass(frozen=True)
class Session:
    """A model as it exists in the cluster (``found``), and the endpoint for its upload."""

    endpoint: Endpoint
    found: Object


class Waiting:
    """A time limit, in seconds, for the whole upload."""

    def __init__(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds

    def pause(self, seconds: float, otherwise: InferenceError) -> None:
        """Sleep for ``seconds``, or raise ``otherwise`` if the time limit ends before."""
        if time.monotonic() + seconds > self.until:
            raise otherwise
        time.sleep(seconds)


class Cluster:
    """The model to upload, and the objects that belong to it, in the cluster."""

    def __init__(self, client: Client, namespace: str, name: str, depot_namespace: str) -> None:
        self._client, self._namespace, self._name, self._depot = client, namespace, name, depot_namespace
        self._kind = MODEL if namespace else CLUSTER_MODEL

    def model(self) -> Object:
        return self._read(self._kind, self._namespace, self._name)

    def session(self, waiting: Waiting, *, wait: bool = True) -> tuple[Object, Mapping[str, str] | None]:
        """Return the model, and the data of the Secret for its upload.

        The data is None if nothing must be uploaded, or if ``wait`` is False and the session is not open yet. Raise
        InferenceError if the model has failed or the time limit ends.
        """
        while True:
            model = self.model()
            phase, upload = phase_of(model), (model.get("status") or {}).get("upload") or {}
            if phase == "Failed":
                raise InferenceError("failed", _why(model, "The model has failed"))
            if uploaded(model) or phase in AFTER:
                return model, None
            if phase == "WaitForUpload" and upload.get("secretName"):
                return model, self._secret(upload)
            if not wait:
                return model, None
            late = InferenceError("timeout", _why(model, "The upload was not open in time"))
            waiting.pause(LOOK_SECONDS, late)

    def authority(self) -> str:
        """Return the PEM text of the depot's CA, or an empty string if it cannot be read."""
        try:
            config_map = self._read(CONFIG_MAP, self._depot, AUTHORITY)
        except InferenceError as error:
            if error.code in ("not_found", "forbidden", "namespace_missing", "definition_missing"):
                return ""
            raise
        return str((config_map.get("data") or {}).get("ca.crt") or "")

    def published(self, waiting: Waiting) -> Object:
        """Wait until the model is Ready, and return it. Raise InferenceError if it has failed or the time limit
        ends."""
        while True:
            model = self.model()
            phase = phase_of(model)
            if phase == "Ready":
                return model
            if phase == "Failed":
                raise InferenceError("failed", _why(model, "The upload was not published"))
            waiting.pause(LOOK_SECONDS, InferenceError("timeout", _why(model, "The upload was not published in time")))

    def _secret(self, upload: Mapping[str, Any]) -> Mapping[str, str]:
        secret = self._read(SECRET, upload.get("secretNamespace") or self._namespace, upload["secretName"])
        data = secret.get("data") or {}
        try:
            credentials = {
                name: base64.b64decode(data[name], validate=True).decode("ascii") for name in ("url", "token")
            }
        except (KeyError, binascii.Error, UnicodeError) as error:
            raise InferenceError("failed", f"The Secret {upload['secretName']} has no url and token.") from error
        return credentials

    def _read(self, kind: Kind, namespace: str, name: str) -> Object:
        return self._client.call(Request("get", kind, namespace, name), time.monotonic() + API_SECONDS)


def phase_of(model: Object) -> str:
    return str((model.get("status") or {}).get("phase") or "")


def uploaded(model: Object) -> bool:
    """Whether all bytes of the model have been uploaded."""
    return bool((model["metadata"].get("annotations") or {}).get(UPLOADED))


def send(
    endpoint: Endpoint,
    what: Content,
    waiting: Waiting,
    tell: Callable[[int], None],
    renewed: Callable[[], Endpoint | None] = lambda: None,
) -> tuple[int, int]:
    """Send the bytes that the depot lacks. Return the offset at which the upload resumed, and the number of bytes sent.

    ``tell`` is called with the number of stored bytes. ``renewed`` returns a new endpoint if the token has expired, or
    None.
    """
    resumed, sent, first, backoff = 0, 0, True, Backoff()
    while True:
        try:
            state = endpoint.state()
            if state.complete:
                _same(state, what)
                return (state.offset if first else resumed), sent
            fits = _fits(state, what) if first else state.length in (None, what.size)
            resumed, first = (state.offset if fits else 0) if first else resumed, False
            tell(state.offset if fits else 0)
            size = min(SLICE, what.size - state.offset) if fits else what.size
            if fits:
                answer = endpoint.more(state.offset, what.size, what.name, what.chunks(state.offset, size), size)
            else:
                answer = endpoint.anew(what.name, what.chunks(0, size), size)
            if answer.status < 300:
                sent += size
                backoff.reset()
            elif answer.status != 409:  # A 409 means another sender or another offset, so the state is read again.
                raise refusal(answer)
            else:
                waiting.pause(backoff.pause(), refusal(answer))
        except InferenceError as error:
            other = renewed() if error.status == 410 else None
            if other is not None and other.token != endpoint.token:
                endpoint = other
            elif error.transient:
                waiting.pause(backoff.pause() if error.retry_after is None else error.retry_after, error)
            else:
                raise
        if time.monotonic() > waiting.until:
            raise InferenceError("timeout", "The upload did not finish in time. Run the task again to resume it.")


def _fits(state: State, what: Content) -> bool:
    """Whether the stored bytes are the beginning of this content."""
    if not state.offset:
        return True
    return state.length == what.size and _mismatch(state, what) is None


def _same(state: State, what: Content) -> None:
    if (state.length is not None and state.length != what.size) or _mismatch(state, what) is not None:
        raise InferenceError("failed", "Another file was uploaded for this model. Recreate the model.")


def _mismatch(state: State, what: Content) -> int | None:
    """Return the offset of the first stored piece that differs from the content, or None if there is none."""
    offset = 0
    for digest, size in state.pieces:
        if what.digest(offset, size) != digest:
            return offset
        offset += size
    return None


def _why(model: Object, what: str) -> str:
    for condition in (model.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") != "True":
            return f"{what}: {condition.get('reason', '')}: {condition.get('message', '')}".rstrip(": ")
    return f"{what}: its phase is {phase_of(model) or 'unknown'}."
