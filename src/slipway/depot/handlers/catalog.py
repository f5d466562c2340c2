"""The catalog: a list of the cluster's own models for other clusters. Holders of a credential can read the catalog, and
get access to the repository of one model. ``slipway.serving.wire.catalogs`` defines the wire format.

Each credential is a file in a directory: the name of the file is the credential's name, and the content is the token.
The depot reads the files for each request, so a removed credential becomes invalid immediately.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from slipway.decoding import DecodingError, decode_json
from slipway.depot.credentials.signing import Access, Signer
from slipway.depot.http.app import LARGEST_BODY, RefusedError, busy
from slipway.depot.settings import Settings
from slipway.kube.caches.informer import Informer
from slipway.kube.objects import Object, annotations_of, created_unix, deleting, key, uid
from slipway.serving.wire.catalogs import CATALOG, CATALOG_BYTES, ENTRIES, GRANTS, VERSION, Entry, Grant, GrantRequest
from slipway.serving.wire.repositories import repository

log = logging.getLogger(__name__)

NAME, LABEL, ACTIVE = (f"slipway.inference/catalog-{what}" for what in ("name", "version", "active"))
"""Annotations of a model: its name and version in the catalog, and ``false`` to exclude it from new imports."""
MOST_CREDENTIALS, CREDENTIAL_BYTES = 1000, 4096
SHORTEST_CREDENTIAL = 16
_CHALLENGE = 'Bearer realm="slipway-catalog"'


class Offer(msgspec.Struct, frozen=True):
    """A model that other clusters may import."""

    entry: Entry
    facts: Object
    repository: str
    age: tuple[int, str]
    """Sort key that puts older models first."""

    def to_entry(self, *, facts: bool) -> Object:
        """Return the model's entry in the catalog document. Include the model's facts if ``facts`` is True and they are
        known."""
        entry: Object = msgspec.to_builtins(self.entry)
        return entry | ({"facts": self.facts} if facts and self.facts else {})


def offers(models: Iterable[Object]) -> list[Offer]:
    """Return an offer for each model that is ready, sorted by name and version, at most ``ENTRIES``. Models with an
    invalid entry are left out. If two models have the same name and version, only the older model is offered."""
    versions: dict[tuple[str, str], Offer] = {}
    for one in sorted(filter(None, map(_offer, models)), key=lambda offer: offer.age):
        versions.setdefault((one.entry.name, one.entry.version), one)
    return [versions[place] for place in sorted(versions)][:ENTRIES]


def _offer(model: Object) -> Offer | None:
    status, notes = model.get("status") or {}, annotations_of(model)
    artifact, source = status.get("artifact") or {}, status.get("source") or {}
    if status.get("phase") != "Ready" or deleting(model):
        return None
    version = (source.get("catalog") or {}).get("version") or source.get("resolvedRevision") or ""
    fields = {
        "name": notes.get(NAME) or key(model).name,
        "version": notes.get(LABEL) or version,
        "active": notes.get(ACTIVE) != "false",
        "digest": artifact.get("digest"),
        "mediaType": artifact.get("mediaType", ""),
        "size": artifact.get("sizeBytes"),
    }
    try:
        entry = msgspec.convert(fields, Entry)
    except msgspec.ValidationError as error:
        log.warning("%s is not in the catalog: %s", key(model), error)
        return None
    place = repository(*key(model), uid(model))
    return Offer(entry, status.get("resolved") or {}, place, (created_unix(model), key(model).name))


def document(catalog_offers: Sequence[Offer]) -> tuple[str, bytes]:
    """Return the revision of the catalog, and the catalog as JSON. Facts about models are left out if the JSON would
    exceed ``CATALOG_BYTES``."""
    entries = [one.to_entry(facts=True) for one in catalog_offers]
    text = msgspec.json.encode(entries)
    if len(text) > CATALOG_BYTES - 1024:
        entries = [one.to_entry(facts=False) for one in catalog_offers]
    revision = hashlib.sha256(msgspec.json.encode(entries, order="deterministic")).hexdigest()
    return revision, msgspec.json.encode({"apiVersion": VERSION, "revision": revision, "entries": entries})


def credentials(folder: Path) -> dict[str, bytes]:
    """Return the SHA-256 of each credential's token, by the credential's name; empty if ``folder`` is unreadable.
    Tokens that are too short or unreadable, hidden files, and files after the first ``MOST_CREDENTIALS`` are
    ignored."""
    hashes: dict[str, bytes] = {}
    try:
        files = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return hashes
    for path in files[:MOST_CREDENTIALS]:
        try:
            with path.open("rb") as file:
                token = file.read(CREDENTIAL_BYTES).strip()
        except OSError:
            continue
        if len(token) >= SHORTEST_CREDENTIAL:
            hashes[path.name] = hashlib.sha256(token).digest()
    return hashes


def holder(hashes: Mapping[str, bytes], authorization: str) -> str | None:
    """Return the name of the credential in an ``Authorization`` header: Bearer with the token, or Basic with the
    credential's name and the token. Return None if no credential matches. The token is always compared with all
    credentials, so that the duration reveals nothing."""
    scheme, _unused, text = authorization.partition(" ")
    named: str | None = None
    token = text.strip()
    if scheme.lower() == "basic":
        named, _unused, token = _basic(token).partition(":")
    elif scheme.lower() != "bearer":
        return None
    digest = hashlib.sha256(token.encode()).digest()
    same = [name for name, expected in hashes.items() if hmac.compare_digest(digest, expected)]
    return next((name for name in same if named in (None, name)), None)


def _basic(text: str) -> str:
    try:
        return b64decode(text, validate=True).decode()
    except ValueError:
        return ""


class Catalog:
    """The handlers for ``/v1/catalog`` and ``/v1/grants``."""

    name = "catalog"

    def __init__(
        self,
        settings: Settings,
        signer: Signer,
        models: Informer,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Serve the models in ``models``, the cache of cluster-scoped models."""
        self._settings, self._signer, self._models, self._now = settings, signer, models, now

    def routes(self) -> Iterable[web.RouteDef]:
        """Return the routes for the catalog and for grants."""
        return [web.get(CATALOG, self.catalog, allow_head=False), web.post(GRANTS, self.grants)]

    async def catalog(self, request: web.Request) -> web.Response:
        """Respond with all cluster-scoped models that are ready, or with 304 if the client has the current revision."""
        self._holder(request)
        revision, text = document(self._offers())
        tag = f'"{revision}"'
        if any(one.value in (revision, "*") for one in request.if_none_match or ()):
            return web.Response(status=304, headers={"ETag": tag})
        return web.Response(body=text, content_type="application/json", headers={"ETag": tag})

    async def grants(self, request: web.Request) -> web.Response:
        """Respond with a token that grants access to the repository of one entry for a few minutes. A client that chose
        an entry while it was active still gets access later."""
        name = self._holder(request)
        grant_request = await _read_body(request, GrantRequest)
        offer = next((one for one in self._offers() if _is(one.entry, grant_request)), None)
        if offer is None:
            raise RefusedError(404, "the catalog has no such entry with this digest")
        now = self._now()
        access = Access("repository", offer.repository, ("pull",))
        grant = Grant(
            api_version=VERSION,
            registry=self._settings.catalog_registry or self._settings.registry,
            repository=offer.repository,
            digest=offer.entry.digest,
            token=self._signer.sign(f"catalog:{name}", [access], now),
            expires_at=datetime.fromtimestamp(int(now) + self._signer.seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        log.info("the credential %s can pull %s@%s", name, offer.repository, offer.entry.digest)
        return web.Response(body=msgspec.json.encode(grant), content_type="application/json")

    def _offers(self) -> list[Offer]:
        """Return the models that other clusters may import. Raise RefusedError (503) until the models have been listed,
        because a client would trust an empty catalog."""
        if not self._models.synced.is_set():
            raise busy("the models are being listed")
        return offers(self._models.store.all())

    def _holder(self, request: web.Request) -> str:
        name = holder(credentials(Path(self._settings.catalog_keys)), request.headers.get("Authorization", ""))
        if name is None:
            raise RefusedError(401, "send a credential of this catalog", WWW_Authenticate=_CHALLENGE)
        return name


def _is(entry: Entry, request: GrantRequest) -> bool:
    return (entry.name, entry.digest) == (request.name, request.digest) and request.version in ("", entry.version)


async def _read_body(request: web.Request, type_: type[Any]) -> Any:
    """Decode the JSON body of a request as ``type_``. Raise RefusedError."""
    try:
        return decode_json(await request.read(), type_, most=LARGEST_BODY)
    except DecodingError as error:
        raise RefusedError(400, f"this is not a grant request: {error}") from None
