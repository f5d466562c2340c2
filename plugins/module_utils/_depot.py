# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""The depot's upload API: the progress of an upload, and further bytes, in requests that each end within a limited
time.

Messages contain the depot's reason for a rejection, but never the token.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError

SILENT_SECONDS = 660
"""Timeout of a request in seconds. The depot waits up to ten minutes for a registry that is unavailable, or read-only
during garbage collection."""
ANSWER_BYTES = 8 << 20
TOLD = 300
"""Number of characters of a response that messages contain."""
TUS = {"Tus-Resumable": "1.0.0"}
# Error code of each status that a retry does not resolve.
CODES = {401: "unauthorized", 404: "not_found", 410: "unauthorized"}
PASSING = frozenset({408, 423, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class State:
    """The state of an upload. ``pieces`` are the (digest, size) of the stored pieces, in order. It is empty once the
    upload is published."""

    offset: int
    length: int | None
    complete: bool
    pieces: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Any
    body: bytes

    @property
    def text(self) -> str:
        return self.body[: 4 * TOLD].decode(errors="replace").strip()[:TOLD]


@dataclass(frozen=True)
class Endpoint:
    """The URL to which a model is uploaded. ``authority`` is the PEM text of the trusted CA; empty means the CAs that
    the machine trusts."""

    url: str
    token: str
    authority: str = ""
    validate: bool = True

    def state(self) -> State:
        answer = self._asked("GET", {"Accept": "application/json"})
        if answer.status != 200:
            raise refusal(answer)
        try:
            document = json.loads(answer.body)
            pieces = tuple((str(piece["digest"]), int(piece["size"])) for piece in document.get("pieces") or ())
            length = document.get("length")
            return State(
                int(document["offset"]), None if length is None else int(length), document["complete"] is True, pieces
            )
        except (ValueError, KeyError, TypeError) as error:
            raise InferenceError("server_error", f"{self.place} is not a depot.") from error

    def more(self, offset: int, length: int, name: str, chunks: Iterable[bytes], size: int) -> Answer:
        """Send ``size`` bytes at ``offset``. Return the depot's response, even if it is an error."""
        headers = {
            "Content-Type": "application/offset+octet-stream",
            "Content-Length": str(size),
            "Upload-Offset": str(offset),
            "Upload-Length": str(length),
            "X-Upload-Filename": _ascii(name),
        }
        return self._asked("PATCH", {**TUS, **headers}, chunks)

    def anew(self, name: str, chunks: Iterable[bytes], size: int) -> Answer:
        """Send the whole content, which replaces what is stored. Return the depot's response, even if it is an
        error."""
        return self._asked("PUT", {"Content-Length": str(size), "X-Upload-Filename": _ascii(name)}, chunks)

    @property
    def place(self) -> str:
        """Scheme and host of the URL, without the path, which names the model."""
        split = urlsplit(self.url)
        return f"{split.scheme}://{split.netloc}"

    def _asked(self, method: str, headers: dict[str, str], chunks: Iterable[bytes] | None = None) -> Answer:
        connection = self._connection()
        path = urlsplit(self.url).path
        try:
            connection.putrequest(method, path)
            for name, value in {"Authorization": f"Bearer {self.token}", **headers}.items():
                connection.putheader(name, value)
            connection.endheaders()
            try:
                for chunk in chunks or ():
                    connection.send(chunk)
            except OSError:
                pass  # The depot may reject the request before all of it is sent. Read its response.
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read(ANSWER_BYTES))
        except ssl.SSLCertVerificationError as error:
            message = f"The certificate of {self.place} cannot be verified: {error}."
            raise InferenceError("certificate", message) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            what = str(error) or type(error).__name__
            raise InferenceError("unreachable", f"{self.place} cannot be reached: {what}.", transient=True) from error
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        split = urlsplit(self.url)
        try:
            if split.scheme == "http":
                return http.client.HTTPConnection(split.hostname or "", split.port, timeout=SILENT_SECONDS)
            context = ssl.create_default_context(cadata=self.authority or None)
            if not self.validate:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            host = split.hostname or ""
            return http.client.HTTPSConnection(host, split.port, timeout=SILENT_SECONDS, context=context)
        except (ValueError, ssl.SSLError) as error:
            message = f"The URL or CA of the depot is invalid: {error}."
            raise InferenceError("invalid_input", message) from error


def refusal(answer: Answer) -> InferenceError:
    """Return the error for a response that is not a success."""
    code = CODES.get(answer.status, "server_error" if answer.status >= 500 and answer.status != 507 else "denied")
    retry_after = answer.headers.get("Retry-After", "")
    return InferenceError(
        code,
        f"The depot answered {answer.status}: {answer.text.rstrip('.')}.",
        answer.status,
        float(retry_after) if retry_after.isdecimal() else None,
        transient=answer.status in PASSING,
    )


def _ascii(name: str) -> str:
    return "".join(character if " " < character <= "~" else "_" for character in name)[-200:] or "model"
