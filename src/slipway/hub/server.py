"""The hub's HTTP server: its routes, access control and error responses.

The routes are those of the Hugging Face Hub with which clients read models. ``/healthz`` and ``/readyz`` are for
Kubernetes' probes. The hub is ready after it has tried to read every repository once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from json import JSONDecodeError
from pathlib import Path
from typing import NamedTuple, TypeVar

from aiohttp import web

from slipway.hub import documents, errors
from slipway.hub.folder import InvalidSettingsError, Library, UnservableError, UnstableError
from slipway.hub.repository import File, Repository, Revision
from slipway.hub.tokens import Tokens
from slipway.hub.transfer import send

log = logging.getLogger(__name__)

PAGE = 1000
"""Default and maximum number of entries per response of a listing. The Link header leads to the next page."""

MAX_RESULTS = 100
"""Default and maximum number of repositories per search response, because the hub must read each of them."""
FRESH_ROW = 60.0
"""Seconds for which a repository's search result without files is cached."""
SMALL, FRESH_ENTRY = 500, 1e-4
"""A repository with more than ``SMALL`` entries is cached for ``FRESH_ENTRY`` seconds per entry, because reading it
takes long. A smaller repository is read for every request."""
FRESH_REFUSED = 1.0
MAX_REMEMBERED = 64
"""Maximum number of repositories in the cache."""
WALKS = 4
"""Maximum number of repositories read or hashed concurrently."""
MOST_WAITING = 256
"""Maximum number of requests that wait for a repository to be read or hashed."""
MOST_AT_ONCE = 128
"""Maximum number of concurrent requests per address, including downloads but not probes."""
PROBES = ("/healthz", "/readyz")

USER = web.RequestKey("user", str)
"""Key for the name of a token's owner in a request. Requests without a token have no such key, and a hub without tokens
sets it for no request."""

Row = TypeVar("Row")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class LastOutcome(NamedTuple):
    """The outcome of the last read of a repository."""

    until: float
    """Time of the event loop until which the outcome is used again."""
    outcome: Repository | UnservableError | None
    """The repository, or why it cannot be served; None: it does not exist."""


def fresh_for(repository: Repository | UnservableError | None) -> float:
    """Return the seconds for which the outcome of reading a repository is cached; 0: it is not cached."""
    if isinstance(repository, UnservableError):
        return FRESH_REFUSED
    entries = sum(len(revision.entries) for revision in repository.refs.values()) if repository else 0
    return FRESH_ENTRY * entries if entries > SMALL else 0.0


class Hub:
    """The HTTP handlers of the hub, and their shared state."""

    def __init__(self, library: Library, tokens: Tokens | None) -> None:
        self._library = library
        self._tokens = tokens
        self._outcomes: OrderedDict[str, LastOutcome] = OrderedDict()
        self._rows: dict[str, tuple[float, documents.Document]] = {}
        self._walks, self._waiting = asyncio.Semaphore(WALKS), 0
        self._in_flight: Counter[str] = Counter()
        self._loading: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._ready = False

    def application(self) -> web.Application:
        app = web.Application(middlewares=[_explain, self._limit, self._authenticate])
        app.cleanup_ctx.append(self._warm)
        model, revision = "/{org}/{name}", "/{revision:refs/[^/]+/[^/]+|[^/]+}"
        app.add_routes(
            [
                web.get("/healthz", self.alive),
                web.get("/readyz", self.ready),
                web.get("/api/whoami-v2", self.whoami),
                web.get("/api/models", self.search),
                web.get(f"/api/models{model}", self.model),
                web.get(f"/api/models{model}/refs", self.refs),
                web.get(f"/api/models{model}/revision{revision}", self.model),
                web.get(f"/api/models{model}/tree{revision}", self.tree),
                web.get(f"/api/models{model}/tree{revision}/{{path:.+}}", self.tree),
                web.post(f"/api/models{model}/paths-info{revision}", self.paths_info),
                web.get(f"{model}/resolve{revision}/{{path:.+}}", self.resolve),
            ]
        )
        return app

    # --- endpoints ---------------------------------------------------------------------------------------------------

    async def alive(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n") if self._ready else web.Response(status=503, text="hashing files\n")

    async def whoami(self, request: web.Request) -> web.Response:
        if USER not in request:
            raise errors.bad_credentials()
        return web.json_response(documents.whoami(request[USER]))

    async def search(self, request: web.Request) -> web.Response:
        """List the models whose name contains the query parameter ``search``, in any case. The parameter ``author``
        selects an organization, and ``full`` adds the files. Models that cannot be served are omitted."""
        text, author = request.query.get("search", "").lower(), request.query.get("author", "")
        names = await asyncio.to_thread(self._library.names)
        matches = [name for name in names if text in name.lower() and (not author or name.startswith(f"{author}/"))]
        page, headers = _page(request, matches, MAX_RESULTS)
        full = _flag(request, "full")
        rows = [row for name in page if (row := await (self._card(name) if full else self._row(name)))]
        return web.json_response(rows, headers=headers)

    async def _card(self, name: str) -> documents.Document | None:
        """Return the description of a repository with its files, or None if the repository does not exist, cannot be
        served, or is changing."""
        try:
            repository = await self._load(name)
        except (UnservableError, UnstableError) as error:
            log.warning("%s: %s", name, error)
            return None
        return documents.model(repository, repository.main, blobs=False) if repository else None

    async def _row(self, name: str) -> documents.Document | None:
        """Return the description of a repository without its files, which may be ``FRESH_ROW`` seconds old. Return None
        if the repository does not exist, cannot be served, or is changing."""
        now = asyncio.get_running_loop().time()
        cached = self._rows.get(name)
        if cached is not None and now - cached[0] <= FRESH_ROW:
            return cached[1]
        row = await self._card(name)
        self._rows.pop(name, None)
        if row is not None:
            del row["siblings"]
            self._rows[name] = now, row
        return row

    async def model(self, request: web.Request) -> web.Response:
        repository, revision = await self._find_revision(request)
        return web.json_response(documents.model(repository, revision, blobs=_flag(request, "blobs")))

    async def refs(self, request: web.Request) -> web.Response:
        repository, _unused = await self._find_revision(request)
        return web.json_response(documents.refs(repository, pull_requests=_flag(request, "include_prs")))

    async def tree(self, request: web.Request) -> web.Response:
        _unused, revision = await self._find_revision(request)
        path = request.match_info.get("path", "").strip("/")
        if path and (path not in revision.entries or isinstance(revision.entries[path], File)):
            raise errors.entry_not_found(path, revision.sha)
        page, headers = _page(request, documents.tree(revision, path, recursive=_flag(request, "recursive")))
        return web.json_response(page, headers=headers | {"X-Repo-Commit": revision.sha})

    async def paths_info(self, request: web.Request) -> web.Response:
        """Return details of the paths in the body. The Hub's own client sends a form, and other clients send JSON."""
        _unused, revision = await self._find_revision(request)
        return web.json_response(documents.paths_info(revision, await _paths(request)))

    async def resolve(self, request: web.Request) -> web.StreamResponse:
        """Send a file of a revision, which requires a token if the repository is gated. The hub also sends LFS files
        directly, without a redirect, because it has no separate storage."""
        repository, revision = await self._find_revision(request)
        if repository.gated and USER not in request:
            raise errors.gated(repository.name)
        path = request.match_info["path"]
        entry = revision.entries.get(path)
        if not isinstance(entry, File):
            raise errors.entry_not_found(path, revision.sha)
        try:
            return await send(request, entry, revision.sha)
        except UnstableError:
            self._outcomes.pop(repository.name, None)
            raise

    # --- shared functions --------------------------------------------------------------------------------------------

    async def _find_revision(self, request: web.Request) -> tuple[Repository, Revision]:
        """Return the repository and the revision in the URL. The default revision is main. Raise HubError if one of
        them does not exist."""
        place = request.match_info
        repository = await self._load(f"{place['org']}/{place['name']}")
        if repository is None:
            raise errors.repository_not_found()
        name = place.get("revision", "main")
        revision = repository.revision(name)
        if revision is None:
            raise errors.revision_not_found(name)
        return repository, revision

    async def _load(self, name: str) -> Repository | None:
        """Return the current or recently cached repository, or None if it does not exist. Raise HubError if too many
        requests are waiting. Errors of ``Library.load`` are not caught."""
        if not await asyncio.to_thread(self._library.has, name):
            self._outcomes.pop(name, None)
            return None
        if self._waiting >= MOST_WAITING:
            raise errors.unavailable("Too many requests are waiting for repositories to be read")
        self._waiting += 1
        try:
            async with self._loading[name]:
                repository = await self._read(name)
        finally:
            self._waiting -= 1
        if isinstance(repository, UnservableError):
            raise repository
        return repository

    async def _read(self, name: str) -> Repository | UnservableError | None:
        clock = asyncio.get_running_loop().time
        outcome = self._outcomes.get(name)
        if outcome is not None and clock() < outcome.until:
            return outcome.outcome
        async with self._walks:
            try:
                repository: Repository | UnservableError | None = await asyncio.to_thread(self._library.load, name)
            except UnservableError as error:
                repository = error
        self._outcomes[name] = LastOutcome(clock() + fresh_for(repository), repository)
        self._outcomes.move_to_end(name)
        while len(self._outcomes) > MAX_REMEMBERED:
            self._outcomes.popitem(last=False)
        return repository

    @web.middleware
    async def _limit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Limit the concurrent requests of each address, so that one address cannot block the others. Probes are not
        limited."""
        address = request.remote or ""
        if request.path in PROBES:
            return await handler(request)
        if self._in_flight[address] >= MOST_AT_ONCE:
            raise errors.too_many_requests()
        self._in_flight[address] += 1
        try:
            return await handler(request)
        finally:
            self._in_flight[address] -= 1
            if not self._in_flight[address]:
                del self._in_flight[address]

    @web.middleware
    async def _authenticate(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Identify the user by the bearer token, if there is one. Raise HubError for an invalid token. A hub without
        tokens ignores the header, because engines may send a token for the public Hub."""
        kind, _unused, token = request.headers.get("Authorization", "").partition(" ")
        if self._tokens and kind.lower() == "bearer":
            user = await asyncio.to_thread(self._tokens.user, token.strip())
            if user is None:
                raise errors.bad_credentials()
            request[USER] = user
        return await handler(request)

    async def _warm(self, _app: web.Application) -> AsyncIterator[None]:
        """Hash all files in the background after startup, so that later requests need not wait until files are
        hashed."""
        task = asyncio.create_task(self._hash_everything())
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _hash_everything(self) -> None:
        try:
            names = await asyncio.to_thread(self._library.names)
        except OSError as error:
            log.warning("Not ready: %s", error)
            return
        for name in names:
            try:
                await self._load(name)
            except (UnstableError, UnservableError, errors.HubError, OSError) as error:
                # Requests for this repository will report it; the others must be served.
                log.warning("%s: %s", name, error)
        self._ready = True
        log.info("Serving %d repositories", len(names))


@web.middleware
async def _explain(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Convert the exceptions of the hub and of aiohttp, and OSErrors other than disconnects, to the error responses
    that clients understand."""
    try:
        return await handler(request)
    except errors.HubError as error:
        return error.response()
    except web.HTTPException as error:
        return errors.HubError(error.status, "", error.reason).response()
    except UnstableError as error:
        return errors.unavailable(str(error)).response()
    except InvalidSettingsError as error:
        log.warning("%s", error)
        return errors.HubError(500, "", "The repository's .hub.yaml is invalid: see the hub's log").response()
    except UnservableError as error:
        log.warning("%s", error)
        return errors.HubError(500, "", "The repository cannot be served: see the hub's log").response()
    except ConnectionError:
        raise  # the client has disconnected
    except OSError as error:
        log.warning("%s %s: %s", request.method, request.path, error)
        return errors.HubError(500, "", "The repository cannot be read: see the hub's log").response()


def _flag(request: web.Request, name: str) -> bool:
    return request.query.get(name, "").lower() in ("true", "1")


def _page(request: web.Request, rows: Sequence[Row], most: int = PAGE) -> tuple[Sequence[Row], dict[str, str]]:
    """Return the requested page of a listing, and the Link header if there is another page. ``most`` is the default and
    maximum number of rows. Raise HubError if the query parameter ``cursor`` or ``limit`` is invalid."""
    try:
        start, limit = int(request.query.get("cursor", 0)), int(request.query.get("limit", most))
    except ValueError:
        raise errors.bad_request("cursor and limit must be numbers") from None
    if start < 0 or limit < 1:
        raise errors.bad_request("cursor and limit must be positive")
    end = start + min(limit, most)
    if end >= len(rows):
        return rows[start:], {}
    following = request.url.update_query(cursor=str(end))
    return rows[start:end], {"Link": f'<{following}>; rel="next"'}


async def _paths(request: web.Request) -> list[str]:
    if request.content_type != "application/json":
        form = await request.post()
        return [value for value in form.getall("paths", []) if isinstance(value, str)]
    try:
        document = await request.json()
    except (JSONDecodeError, UnicodeDecodeError):
        raise errors.bad_request("the body is not JSON") from None
    paths = document.get("paths", []) if isinstance(document, dict) else None
    if isinstance(paths, str):
        return [paths]
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise errors.bad_request("paths must be a list of strings")
    return paths


def application(root: Path, tokens: Path | None, gated: Sequence[str] = ()) -> web.Application:
    """Return the hub's aiohttp application for the repositories below ``root``. ``tokens`` is the path of the tokens
    file; None: there are no tokens, so files of gated repositories cannot be read. ``gated`` contains the names or
    patterns of the repositories that the operator gates. Errors of the constructor of ``Tokens`` are not caught."""
    return Hub(Library(root, gated), Tokens(tokens) if tokens else None).application()
