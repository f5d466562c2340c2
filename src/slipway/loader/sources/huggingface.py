"""The Hugging Face Hub, or a mirror of it: ``hf://ORG/REPO[/FOLDER][@REVISION]``.

Three calls of its public protocol are all that a load needs, and the hub's own client checks sizes only; so this speaks
the protocol itself: the tree tells a hash of every file (SHA-256 of large ones, git's of the others), which is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from urllib.parse import quote, urljoin

import requests

from slipway.artifacts.huggingface import REPOSITORY, TOKEN
from slipway.loader.digests import Digest, Kind
from slipway.loader.errors import LoadError, PassingError
from slipway.loader.source import Body, Entry, Listing, Patiently, Source
from slipway.loader.sources import http

PUBLIC = "https://huggingface.co"


class HuggingFace:
    def __init__(self, repository: str, folder: str, revision: str, env: Mapping[str, str]) -> None:
        self._repository, self._folder, self._revision = repository, folder, revision
        self._endpoint = (env.get("HF_ENDPOINT") or PUBLIC).rstrip("/")
        token = env.get(TOKEN, "").strip()
        self._has_token = bool(token)
        self._client = http.session(env, http.Bearer(token) if token else None)

    def listing(self, patiently: Patiently) -> Listing:
        sha = patiently(self._commit)
        prefix = f"{self._folder}/" if self._folder else ""
        entries = [self._entry(row, sha, prefix) for row in self._tree(sha, patiently) if row.get("type") == "file"]
        if not entries:
            raise LoadError(f"{self._name()} has no files{f' below {self._folder}' if self._folder else ''}")
        return Listing(sha, tuple(entries))

    def read(self, entry: Entry, start: int) -> AbstractContextManager[Body]:
        return http.read(self._client, entry.locator, start, self._explain)

    def _commit(self) -> str:
        address = f"{self._endpoint}/api/models/{self._repository}/revision/{quote(self._revision, safe='')}"
        card, _response = http.document(self._client, address, self._explain)
        sha = card.get("sha") if isinstance(card, dict) else None
        if not isinstance(sha, str) or not sha:
            raise PassingError(f"{http.host_of(address)} does not tell the commit of {self._name()}")
        return sha

    def _tree(self, sha: str, patiently: Patiently) -> list[dict[str, object]]:
        folder = f"/{quote(self._folder)}" if self._folder else ""
        address = f"{self._endpoint}/api/models/{self._repository}/tree/{sha}{folder}?recursive=true&expand=false"
        rows: list[dict[str, object]] = []
        while address:
            page, response = patiently(partial(http.document, self._client, address, self._explain))
            if not isinstance(page, list):
                raise PassingError(f"{http.host_of(address)} does not list the files of {self._name()}")
            rows += page
            following = urljoin(address, response.links.get("next", {}).get("url", ""))
            if http.origin(following) != http.origin(self._endpoint):
                raise LoadError(f"{http.host_of(address)} leads away from itself in a listing; nothing is sent there")
            address = following if following != address else ""
        return rows

    def _entry(self, row: Mapping[str, object], sha: str, prefix: str) -> Entry:
        path, size, large = str(row["path"]), row["size"], row.get("lfs")
        kind, value = (Kind.SHA256, large["oid"]) if isinstance(large, dict) else (Kind.GIT, row["oid"])
        locator = f"{self._endpoint}/{self._repository}/resolve/{sha}/{quote(path)}"
        digest = Digest(kind, str(value).lower())
        return Entry(path.removeprefix(prefix), locator, int(str(size)), digest, digest.value)

    def _name(self) -> str:
        return f"hf://{self._repository}@{self._revision}"

    def _explain(self, response: requests.Response) -> str:
        code, name, host = response.headers.get("X-Error-Code", ""), self._name(), http.host_of(self._endpoint)
        status = response.status_code
        if status == 401 and self._has_token and "credentials" in response.headers.get("X-Error-Message", "").lower():
            return f"{host} does not know the token in {TOKEN}: renew it"
        if code == "RevisionNotFound":
            return f"{self._repository} has no revision {self._revision!r}: check what follows the @"
        if code == "EntryNotFound":
            return f"{name} has no such file or folder: check the address"
        if code == "GatedRepo" or status == 403:
            do = (
                "accept its terms on the hub with the token's account"
                if self._has_token
                else f"give a token by {TOKEN}"
            )
            return f"{host} does not let this account read {self._repository}: {do}"
        if status in (401, 404):
            do = "the token's account may not see it" if self._has_token else f"it is private and needs {TOKEN}"
            return f"{host} knows no repository {self._repository}: the name is wrong, or {do}"
        return f"{host} refuses {name} with status {status}: check the address"


def open_source(url: str, env: Mapping[str, str]) -> Source:
    reference, _at, revision = url.partition("://")[2].partition("@")
    organisation, _slash, rest = reference.strip("/").partition("/")
    name, _slash, folder = rest.partition("/")
    if not REPOSITORY.fullmatch(f"{organisation}/{name}"):
        raise LoadError(f"{url!r} names no repository: it is hf://ORGANISATION/REPOSITORY, @REVISION may follow")
    return HuggingFace(f"{organisation}/{name}", folder, revision or "main", env)
