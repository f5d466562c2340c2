"""What the control process answers itself: the model list (behind HAProxy, on a Unix socket), health and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from aiohttp import web

from slipway.gateway import errors
from slipway.gateway.selector import HEADER
from slipway.gateway.settings import address
from slipway.gateway.table import EMPTY, Card, RoutingTable
from slipway.serving.selector import InvalidSelector, Requirement, chosen, parse

TEXT_GENERATION = "TextGeneration"
"""Models that say what they can do are listed by default where this is among it."""
MOST_SELECTOR = 1024
"""Characters of a label selector, which is held against every model of the list."""
_AT_A_TIME = 200
"""Models that are looked at before others get their turn in the process that steers HAProxy."""


class ModelList:
    """The model list of the newest table. Each card is written once for a table, and so is the usual answer."""

    def __init__(self, current: Callable[[], RoutingTable]) -> None:
        self._current = current
        self._written = EMPTY
        self._texts: Mapping[str, bytes] = {}
        self._usual = _body(())

    async def body(self, features: frozenset[str], wanted: Sequence[Requirement]) -> bytes:
        """The answer as JSON: of models that can do any of these features, and fulfil the selector."""
        table = self._current()
        if table is not self._written:
            self._texts = {model: msgspec.json.encode(table.cards[model].public()) for model in table.listed}
            self._usual = _body(self._texts[model] for model in table.listed if shown(table.cards[model], frozenset()))
            self._written = table
        if not features and not wanted:
            return self._usual
        texts, found = self._texts, []
        for start in range(0, len(table.listed), _AT_A_TIME):
            for model in table.listed[start : start + _AT_A_TIME]:
                card = table.cards[model]
                if shown(card, features) and chosen(wanted, card.labels):
                    found.append(texts[model])
            await asyncio.sleep(0)
        return _body(found)


def _body(cards: Iterable[bytes]) -> bytes:
    return b'{"object":"list","data":[' + b",".join(cards) + b"]}"


def model_list(current: Callable[[], RoutingTable]) -> web.Application:
    """``/v1/models`` and ``/v1/models/{id}``; ids may hold slashes. Both obey label selectors."""
    models = ModelList(current)

    async def listed(request: web.Request) -> web.Response:
        try:
            wanted = _wanted(request)
        except Refusal as refusal:
            return _refused(refusal.failure)
        body = await models.body(frozenset(request.query.getall("feature", [])), wanted)
        return web.Response(body=body, content_type="application/json", charset="utf-8")

    async def one(request: web.Request) -> web.Response:
        try:
            wanted = _wanted(request)
        except Refusal as refusal:
            return _refused(refusal.failure)
        model = request.match_info["model"]
        card = current().cards.get(model)
        if card and chosen(wanted, card.labels):
            return web.json_response(card.public())
        return _refused(_unknown(model))

    application = web.Application()
    application.add_routes([web.get("/v1/models", listed), web.get(r"/v1/models/{model:[\s\S]+}", one)])
    return application


def shown(card: Card, features: frozenset[str]) -> bool:
    """Whether the list shows a model: by any feature asked for; else text generators, and those that tell none."""
    if features:
        return not features.isdisjoint(card.features)
    return not card.features or TEXT_GENERATION in card.features


class Refusal(Exception):
    """The request cannot be answered as it is."""

    def __init__(self, failure: errors.Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def _wanted(request: web.Request) -> Sequence[Requirement]:
    """Raises Refusal."""
    selectors = request.headers.getall(HEADER, [])
    if sum(map(len, selectors)) > MOST_SELECTOR:
        raise Refusal(errors.LONG_SELECTOR)
    try:
        return parse(*selectors)
    except InvalidSelector as error:
        raise Refusal(errors.BAD_SELECTOR) from error


def _unknown(model: str) -> errors.Failure:
    return errors.Failure(404, f"The model `{model[:128]}` does not exist.", param="model", code="model_not_found")


def _refused(failure: errors.Failure) -> web.Response:
    return web.Response(status=failure.status, text=failure.body(), content_type="application/json")


def operations(ready: Callable[[], bool], numbers: Callable[[], Awaitable[bytes]]) -> web.Application:
    """``/healthz`` (the process runs), ``/readyz`` (the first table is applied and no end is near), ``/metrics``."""

    async def healthz(_unused: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def readyz(_unused: web.Request) -> web.Response:
        return web.Response(text="ok") if ready() else web.Response(status=503, text="not ready")

    async def metrics(_unused: web.Request) -> web.Response:
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=await numbers(), headers=headers)

    application = web.Application()
    application.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    return application


@asynccontextmanager
async def served(application: web.Application, where: Path | str) -> AsyncIterator[None]:
    """Serves on a Unix socket (a path) or on ``[host]:port`` (text) while the context lasts."""
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        site: web.BaseSite
        if isinstance(where, Path):
            where.unlink(missing_ok=True)  # noqa: ASYNC240  # one call at start
            site = web.UnixSite(runner, str(where))
        else:
            site = web.TCPSite(runner, *address(where))
        await site.start()
        yield
    finally:
        await runner.cleanup()
