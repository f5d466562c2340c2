"""Gate: admits requests that the controller signed, and no others."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from slipway.serving.wire import proof
from slipway.serving.wire.proof import Proof, ProofError


class Gate(msgspec.Struct, frozen=True):
    """The key whose requests a loader accepts, and the pod that they must be for."""

    key: Ed25519PublicKey
    """The controller's."""
    pod: str
    """uid of the pod that the loader runs in."""
    clock: Callable[[], int] = time.time_ns

    def admitted(self, request: web.Request) -> Proof:
        """What the request's proof says; its body has not been read. Raises HTTPUnauthorized or HTTPForbidden."""
        header = request.headers.get(proof.HEADER)
        try:
            return proof.verify_proof(self.key, header, request.method, request.raw_path, self.pod, self.clock())
        except ProofError as error:
            if error.missing:
                raise web.HTTPUnauthorized(text=f"{error}\n", headers={"WWW-Authenticate": proof.SCHEME}) from error
            raise web.HTTPForbidden(text=f"{error}\n") from error

    async def body(self, request: web.Request, proven: Proof) -> bytes:
        """The body that was signed. Raises HTTPForbidden for another one, HTTPRequestEntityTooLarge."""
        body = await request.read()
        if proof.body_digest(body) != proven.digest:
            raise web.HTTPForbidden(text="the body is not the one that was signed\n")
        return body
