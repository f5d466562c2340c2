"""A model in another cluster's catalog: ``catalog://HOST[:PORT]/PATH@sha256:...``, an artifact in that cluster's
registry.

``HOST`` is the depot of this cluster, which has the catalog's credentials. The depot returns a grant: the location of
the artifact, and a token that is valid for a few minutes. When the token expires, the loader requests a new grant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
import requests

from slipway.artifacts.locations.references import DIGEST, Reference
from slipway.decoding import DecodingError, decode_json
from slipway.loader.sources.registry import Artifact
from slipway.loader.transport import http
from slipway.loader.transport.errors import LoadError, TransientError
from slipway.loader.transport.registry import CA, TOKEN_FILE, Credentials, Registry, loopback, session
from slipway.loader.transport.source import Access, Listing, Retry, Source

GRANT_BYTES = 1 << 18
REASON_BYTES, REASON_CHARACTERS = 1 << 16, 600
NOT_YET = 409
"""HTTP status of the depot while no catalog entry is recorded for the model."""
HOST = re.compile(r"[A-Za-z0-9.-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")
REPOSITORY = re.compile(r"[a-z0-9]+([._/-]+[a-z0-9]+)*")


class Grant(msgspec.Struct, frozen=True):
    """The location of an artifact in another cluster's registry, with a token to pull it."""

    registry: str
    repository: str
    digest: str
    token: str
    ca: str = ""
    """CA certificate of the registry in PEM format; empty: a public CA."""


class Imported(Artifact):
    """The source of an artifact in another cluster's registry. The other cluster chooses the registry's address, so the
    address policy applies to it. The policy does not apply to the depot, which is part of this cluster."""

    def __init__(self, place: str, digest: str, env: Mapping[str, str], access: Access) -> None:
        self._env, self._digest, self._access = env, digest, access
        scheme = "http" if loopback(place.partition("/")[0]) else "https"
        self._url = f"{scheme}://{place}"
        self._credentials = Credentials(env.get(TOKEN_FILE, ""))
        self._client = session(env, env.get(CA, ""))

    def listing(self, retry: Retry) -> Listing:
        """List the files of the artifact. Raise LoadError if the depot denies the grant, or grants access to another
        artifact."""
        grant = retry(self._grant)
        reference = Reference(grant.registry, grant.repository, digest=grant.digest)
        credentials = Credentials(granted=lambda: self._grant().token)
        policy = self._access.of(chosen=True)
        remote = Registry(reference, self._env, credentials, ca=grant.ca, address_policy=policy)
        super().__init__(remote, digest=grant.digest)
        return super().listing(retry)

    def _grant(self) -> Grant:
        headers = {**self._credentials.header(), "Content-Length": "0"}
        host = http.host_of(self._url)
        with http.send(self._client, "POST", self._url, headers) as answer:
            if answer.status_code == NOT_YET:
                raise TransientError(f"{host} has no import for this model yet")
            if answer.is_redirect or not answer.ok:
                raise LoadError(f"{host} denied the grant: {answer.status_code} {_first_line(answer)}".strip())
            try:
                grant = decode_json(http.content(answer, GRANT_BYTES), Grant, most=GRANT_BYTES)
            except DecodingError as error:
                raise TransientError(f"{host} did not return a grant") from error
        if grant.digest != self._digest:
            raise LoadError(f"{host} returned a grant for a different artifact than {self._digest}")
        if not HOST.fullmatch(grant.registry) or not REPOSITORY.fullmatch(grant.repository):
            raise LoadError(f"{host} returned a grant for an invalid registry")
        return grant


def _first_line(answer: requests.Response) -> str:
    """Return the reason in the depot's error response, which is its first line, or an empty string if the line is not
    printable."""
    line = http.content(answer, REASON_BYTES).decode("ascii", "replace").partition("\n")[0][:REASON_CHARACTERS]
    return line if line.isprintable() else ""


def open_source(url: str, env: Mapping[str, str], access: Access) -> Source:
    """Return the source of a ``catalog://`` URL. Raise LoadError if the URL is invalid."""
    place, _at, digest = url.partition("://")[2].rpartition("@")
    if not DIGEST.fullmatch(digest) or not HOST.fullmatch(place.partition("/")[0]):
        raise LoadError(f"{url!r} does not name an artifact in a catalog: write catalog://HOST/PATH@sha256:...")
    return Imported(place, digest, env, access)
