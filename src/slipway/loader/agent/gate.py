"""A gate that admits only requests signed by the controller."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from slipway.serving.wire import proof
from slipway.serving.wire.proof import Proof, ProofError


class Gate(msgspec.Struct, frozen=True):
    """A check that the controller signed a request, and signed it for this pod."""

    key: Ed25519PublicKey
    """The controller's public key."""
    pod: str
    """Uid of the pod in which the loader runs."""
    clock: Callable[[], int] = time.time_ns

    def verify(self, request: web.Request) -> Proof:
        """Verify the signature of a request before its body is read, and return the proof. Raise HTTPUnauthorized if
        the request has no signature in the expected format, or HTTPForbidden if the signature is invalid, too old, or
        for another pod or request."""
        header = request.headers.get(proof.HEADER)
        try:
            return proof.verify_proof(self.key, header, request.method, request.raw_path, self.pod, self.clock())
        except ProofError as error:
            if error.missing:
                raise web.HTTPUnauthorized(text=f"{error}\n", headers={"WWW-Authenticate": proof.SCHEME}) from error
            raise web.HTTPForbidden(text=f"{error}\n") from error

    async def body(self, request: web.Request, proven: Proof) -> bytes:
        """Return the body of a verified request. Raise HTTPForbidden if the controller signed a different body, or
        HTTPRequestEntityTooLarge if the body exceeds the application's limit."""
        body = await request.read()
        if proof.body_digest(body) != proven.digest:
            raise web.HTTPForbidden(text="the body is not the one that was signed\n")
        return body
