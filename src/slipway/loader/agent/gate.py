"""Gate: admits only requests that the controller signed."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from slipway.serving.wire import proof
from slipway.serving.wire.proof import Proof, ProofError


class Gate(msgspec.Struct, frozen=True):
    """The key of accepted requests, and the pod for which they must be signed."""

    key: Ed25519PublicKey
    """The controller's public key."""
    pod: str
    """Uid of the loader's pod."""
    clock: Callable[[], int] = time.time_ns

    def verify(self, request: web.Request) -> Proof:
        """Verifies the request's proof, before its body is read. Raises HTTPUnauthorized or HTTPForbidden."""
        header = request.headers.get(proof.HEADER)
        try:
            return proof.verify_proof(self.key, header, request.method, request.raw_path, self.pod, self.clock())
        except ProofError as error:
            if error.missing:
                raise web.HTTPUnauthorized(text=f"{error}\n", headers={"WWW-Authenticate": proof.SCHEME}) from error
            raise web.HTTPForbidden(text=f"{error}\n") from error

    async def body(self, request: web.Request, proven: Proof) -> bytes:
        """Returns the body if it is the signed one. Raises HTTPForbidden if not, or HTTPRequestEntityTooLarge."""
        body = await request.read()
        if proof.body_digest(body) != proven.digest:
            raise web.HTTPForbidden(text="the body is not the one that was signed\n")
        return body
