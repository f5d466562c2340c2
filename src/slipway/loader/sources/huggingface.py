"""The Hugging Face Hub, or a mirror of it: ``hf://ORG/REPO[/FOLDER][@REVISION]``.

The Hub's library resolves the revision and lists the files. Its downloads check only sizes. Therefore the loader reads
the files itself, and verifies them with the hash in the list: SHA-256 for large files, and the hash of a git blob for
others.
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
from huggingface_hub.hf_api import ModelInfo, RepoFile

from slipway.artifacts.locations.huggingface import REPOSITORY, TOKEN
from slipway.loader.transport import http
from slipway.loader.transport.digests import Digest, Kind
from slipway.loader.transport.errors import LoadError
from slipway.loader.transport.source import Access, Body, Entry, Listing, Retry, Source, bounded

CODING = ("content-encoding", "content-length", "transfer-encoding")
"""Response headers that describe the encoded body and do not apply after decoding."""
PUBLIC = "https://huggingface.co"
ASK: ContextVar[Callable[[httpx2.Request], httpx2.Response]] = ContextVar("ASK")
"""Function that sends the requests of the Hub's library in the current context."""


class Way(httpx2.BaseTransport):
    """An HTTP transport for the Hub's library, which has a single client for all uses. The transport forwards each
    request to the function in ``ASK``."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request with the function in ``ASK``. The library calls this method."""
        return ASK.get()(request)


set_client_factory(lambda: httpx2.Client(transport=Way()))


class Answer(Protocol):
    """The interface that the responses of both HTTP libraries have in common."""

    status_code: int

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers by name; names are not case-sensitive."""


class HuggingFace:
    def __init__(self, repository: str, folder: str, revision: str, env: Mapping[str, str], access: Access) -> None:
        self._repository, self._folder, self._revision = repository, folder, revision
        self._endpoint = (env.get("HF_ENDPOINT") or PUBLIC).rstrip("/")
        token = env.get(TOKEN, "").strip()
        self._has_token = bool(token)
        address_policy = access.of(chosen=bool(env.get("HF_ENDPOINT")))
        self._client = http.session(env, http.Bearer(token) if token else None, address_policy)
        self._api = HfApi(self._endpoint, token=False)  # the session has the token

    def listing(self, retry: Retry) -> Listing:
        """List the files of the repository or of the folder in it. Raise LoadError if access is denied or there are no
        files."""
        asking = ASK.set(lambda request: retry(partial(self._request, urljoin(self._endpoint, str(request.url)))))
        try:
            info = self._api.model_info(self._repository, revision=self._revision)
            sha = info.sha
            if not sha:
                raise LoadError(f"{http.host_of(self._endpoint)} did not return the commit of {self._name()}")
            entries = bounded(self._entries(sha), self._name())
        except HfHubHTTPError as error:
            raise LoadError(self._explain(error.response)) from None
        except HFValidationError as error:
            raise LoadError(f"{self._name()} does not name a repository: the hub does not allow such names") from error
        finally:
            ASK.reset(asking)
        if not entries:
            raise LoadError(f"{self._name()} has no files{f' below {self._folder}' if self._folder else ''}")
        return Listing(sha, entries, tasks=_tasks(info), licenses=_licenses(info))

    def read(self, entry: Entry, start: int) -> AbstractContextManager[Body]:
        """Open a file at offset ``start``. Raise LoadError or TransientError."""
        return http.open_body(self._client, entry.locator, start, self._explain)

    def _request(self, url: str) -> httpx2.Response:
        """Send a request of the Hub's library through the session that all sources share, with its proxies,
        certificates and limits. Raise LoadError if the request goes to another origin than the Hub's."""
        if http.origin(url) != http.origin(self._endpoint):
            raise LoadError(f"{http.host_of(self._endpoint)} links to another host in a listing; not following")
        with http.send(self._client, "GET", url) as response:
            headers = {name: value for name, value in response.headers.items() if name.lower() not in CODING}
            return httpx2.Response(response.status_code, headers=headers, content=http.content(response))

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
            return f"{host} rejects the token in {TOKEN}: renew it"
        if code == "RevisionNotFound":
            return f"{self._repository} has no revision {self._revision!r}: check what follows the @"
        if code == "EntryNotFound":
            return f"{name} has no such file or folder: check the address"
        if code == "GatedRepo" or status == 403:
            do = (
                "accept its terms on the hub with the token's account" if self._has_token else f"set {TOKEN} to a token"
            )
            return f"{host} does not let this account read {self._repository}: {do}"
        if status in (401, 404):
            do = "the token's account has no access" if self._has_token else f"it is private and needs {TOKEN}"
            return f"{host} has no repository {self._repository}: the name is wrong, or {do}"
        return f"{host} answers {status} for {name}: check the address"


def _tasks(info: ModelInfo) -> tuple[str, ...]:
    """Return the task in the model's evaluation results if they agree on one, and otherwise the task that the Hub
    reports, if any."""
    results = (info.card_data.eval_results if info.card_data else None) or ()
    tasks = {result.task_type for result in results if isinstance(result.task_type, str)}
    return tuple(tasks) if len(tasks) == 1 else tuple(filter(None, [info.pipeline_tag]))


def _licenses(info: ModelInfo) -> tuple[str, ...]:
    licenses = info.card_data.get("license") if info.card_data else None
    names = licenses if isinstance(licenses, list) else [licenses]
    return tuple(name for name in names if isinstance(name, str))


def open_source(url: str, env: Mapping[str, str], access: Access) -> Source:
    """Return the source of an ``hf://`` URL. Raise LoadError if the URL is invalid."""
    reference, _at, revision = url.partition("://")[2].partition("@")
    organisation, _slash, rest = reference.strip("/").partition("/")
    name, _slash, folder = rest.partition("/")
    if not REPOSITORY.fullmatch(f"{organisation}/{name}"):
        raise LoadError(f"{url!r} does not name a repository: write hf://ORGANIZATION/REPOSITORY[@REVISION]")
    return HuggingFace(f"{organisation}/{name}", folder, revision or "main", env, access)
