"""The Hugging Face Hub, or a mirror of it: ``hf://ORG/REPO[/FOLDER][@REVISION]``.

The hub's own library resolves the revision and lists the files. It checks of what it downloads the sizes only; so the
bytes come the way of all sources, and the hash that the list tells of every file is checked: SHA-256 of large ones,
git's of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import partial
from typing import Protocol
from urllib.parse import urljoin

import httpx2
from huggingface_hub import HfApi, hf_hub_url, set_client_factory
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.hf_api import RepoFile

from slipway.artifacts.huggingface import REPOSITORY, TOKEN
from slipway.loader.digests import Digest, Kind
from slipway.loader.errors import LoadError
from slipway.loader.source import Access, Body, Entry, Listing, Patiently, Source, bounded
from slipway.loader.sources import http

CODING = ("content-encoding", "content-length", "transfer-encoding")
"""Headers of a body that is not decoded yet."""
PUBLIC = "https://huggingface.co"
ASK: ContextVar[Callable[[httpx2.Request], httpx2.Response]] = ContextVar("ASK")
"""How the library's requests are made while one thread lists a repository."""


class Way(httpx2.BaseTransport):
    """The library has one client for all: it asks as whoever uses it at the moment wants it."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return ASK.get()(request)


set_client_factory(lambda: httpx2.Client(transport=Way()))


class Answer(Protocol):
    """What the clients of both libraries give."""

    status_code: int

    @property
    def headers(self) -> Mapping[str, str]:
        """By name, in any case."""


class HuggingFace:
    def __init__(self, repository: str, folder: str, revision: str, env: Mapping[str, str], access: Access) -> None:
        self._repository, self._folder, self._revision = repository, folder, revision
        self._endpoint = (env.get("HF_ENDPOINT") or PUBLIC).rstrip("/")
        token = env.get(TOKEN, "").strip()
        self._has_token = bool(token)
        guard = access.of(chosen=bool(env.get("HF_ENDPOINT")))
        self._client = http.session(env, http.Bearer(token) if token else None, guard)
        self._api = HfApi(self._endpoint, token=False)  # the session has it

    def listing(self, patiently: Patiently) -> Listing:
        asking = ASK.set(lambda request: patiently(partial(self._ask, urljoin(self._endpoint, str(request.url)))))
        try:
            sha = self._api.model_info(self._repository, revision=self._revision).sha
            if not sha:
                raise LoadError(f"{http.host_of(self._endpoint)} does not tell the commit of {self._name()}")
            entries = bounded(self._entries(sha), self._name())
        except HfHubHTTPError as error:
            raise LoadError(self._explain(error.response)) from None
        except HFValidationError as error:
            raise LoadError(f"{self._name()} names no repository: the hub allows no such name") from error
        finally:
            ASK.reset(asking)
        if not entries:
            raise LoadError(f"{self._name()} has no files{f' below {self._folder}' if self._folder else ''}")
        return Listing(sha, entries)

    def read(self, entry: Entry, start: int) -> AbstractContextManager[Body]:
        return http.read(self._client, entry.locator, start, self._explain)

    def _ask(self, url: str) -> httpx2.Response:
        """By the session of all sources, with its proxies, certificates, limits and failures."""
        if http.origin(url) != http.origin(self._endpoint):
            raise LoadError(
                f"{http.host_of(self._endpoint)} leads away from itself in a listing; nothing is sent there"
            )
        with http.send(self._client, "GET", url) as response, http.connected():
            kept = {name: value for name, value in response.headers.items() if name.lower() not in CODING}
            return httpx2.Response(response.status_code, headers=kept, content=response.content)

    def _entries(self, sha: str) -> Iterator[Entry]:
        prefix = f"{self._folder}/" if self._folder else ""
        for row in self._api.list_repo_tree(self._repository, self._folder or None, recursive=True, revision=sha):
            if isinstance(row, RepoFile):
                kind, value = (Kind.SHA256, row.lfs.sha256) if row.lfs else (Kind.GIT, row.blob_id)
                digest = Digest(kind, value.lower())
                locator = hf_hub_url(self._repository, row.path, revision=sha, endpoint=self._endpoint)
                yield Entry(row.path.removeprefix(prefix), locator, int(row.size), digest, digest.value)

    def _name(self) -> str:
        return f"hf://{self._repository}@{self._revision}"

    def _explain(self, response: Answer) -> str:
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


def open_source(url: str, env: Mapping[str, str], access: Access) -> Source:
    reference, _at, revision = url.partition("://")[2].partition("@")
    organisation, _slash, rest = reference.strip("/").partition("/")
    name, _slash, folder = rest.partition("/")
    if not REPOSITORY.fullmatch(f"{organisation}/{name}"):
        raise LoadError(f"{url!r} names no repository: it is hf://ORGANISATION/REPOSITORY, @REVISION may follow")
    return HuggingFace(f"{organisation}/{name}", folder, revision or "main", env, access)
