"""Gateways tell each other what keys have used, and keep to their shares of the limits. All I/O for sharing.py is here.

Every moment each gateway tells the one that leads (the first by address that answers) where it stands, and writes the
shares that it is told into HAProxy's map. Both texts are signed with a key that the gateways alone have, name who they
are for and when they were written, and are worth nothing a second time. Without the key each gateway is on its own.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import hmac
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import aiohttp
import msgspec
from aiohttp import web

from slipway.gateway import limits
from slipway.gateway.dataplane import DataPlane
from slipway.gateway.haproxy_socket import CommandError
from slipway.gateway.keys import ALL, Limited, Limits, Rights, is_identity
from slipway.gateway.limits import Counted
from slipway.gateway.settings import Settings, address, endpoint
from slipway.gateway.sharing import LEASE_SECONDS, MOST_GATEWAYS, Leader, Share, Standing
from slipway.gateway.spent import WRITE_SECONDS, Day, Store, budgets, is_news

log = logging.getLogger(__name__)

PATH = "/shares"
_SIGNATURE = "x-slipway-signature"
_BUSY_SECONDS, _REST_SECONDS = 0.1, 0.5
"""Between two exchanges, while requests of keys with limits come and while none do."""
_UNLIMITED_SECONDS = 2.0
"""Between two looks whether a key has limits."""
_ASKING_SECONDS = 1.0
"""For one exchange."""
_AGE_SECONDS = 30.0
"""How old a message may be."""
_SILENT_SECONDS = 2 * LEASE_SECONDS
"""From then on the next one leads in the place of a gateway that does not answer."""
_AGAIN_SECONDS = 5.0
"""So often it is asked again."""
_MOST_BYTES = 4 << 20
_MOST_AT_ONCE = 2 * MOST_GATEWAYS
_LEAST_KEY = 32
"""Bytes of a key for signing."""
_MOST_OWNERS = 1000
"""Of tokens, whom no record names and who have shares of their own. More of them have that of all."""
_TELL_SECONDS = LEASE_SECONDS - 1
"""So often a gateway tells all that it keeps to, as there may be a new leader."""
_DEMAND_KEPT = 0.8
_NO_DEMAND = 0.05


class Report(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a gateway tells the one that leads."""

    sender: str
    to: str
    at: int
    """Unix time in nanoseconds, larger in each report of a sender."""
    day: str
    """In UTC, YYYYMMDD."""
    spent: dict[str, tuple[int, int]]
    """Requests and tokens of the day of all gateways, as the sender knows it; of the keys in `standings`."""
    standings: dict[str, Standing]


class Answer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What it is told back."""

    shares: dict[str, Share]


class _RefusedError(Exception):
    """A gateway did not answer, or its answer is not one of a gateway's."""


class Seal:
    """Signs and checks, with a key that all gateways have."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, *parts: bytes) -> str:
        """The signature of these parts."""
        made = hmac.new(self._key, digestmod=hashlib.sha256)
        for part in parts:
            made.update(len(part).to_bytes(8, "big") + part)
        return made.hexdigest()

    def fits(self, signature: str, *parts: bytes) -> bool:
        """Whether somebody with the key has signed these parts."""
        return hmac.compare_digest(self.of(*parts).encode(), signature.encode(errors="replace"))


def read_seal(path: str) -> Seal | None:
    """The seal whose key is in a file; None where there is none that could be one."""
    try:
        key = Path(path).read_bytes().strip() if path else b""
    except OSError:
        return None
    return Seal(key) if len(key) >= _LEAST_KEY else None


class Demand:
    """How many requests of each key came of late, from counters that only grow."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        self._rates: dict[str, float] = {}

    def look(self, counted: Mapping[str, Counted]) -> dict[str, float]:
        """Takes the counters and returns what came, by key."""
        for key, one in counted.items():
            new = one.asked - self._before.get(key, 0)
            # A counter that became less began anew.
            rate = _DEMAND_KEPT * self._rates.get(key, 0.0) + (new if new >= 0 else one.asked)
            self._rates[key] = rate if rate >= _NO_DEMAND else 0.0
        self._before = {key: one.asked for key, one in counted.items()}
        self._rates = {key: rate for key, rate in self._rates.items() if key in counted}
        return self._rates


class Leading:
    """This gateway's leader, which begins anew where nobody has asked for a while."""

    def __init__(self) -> None:
        self._leader: Leader | None = None
        self._asked = float("-inf")

    def now(self, moment: float, day: str, spent: Mapping[str, tuple[int, ...]]) -> Leader:
        """The leader to ask at this moment; it knows what is spent."""
        if self._leader is None or moment - self._asked > LEASE_SECONDS:
            self._leader = Leader(moment)
        self._asked = moment
        self._leader.remember(day, spent)
        return self._leader


class Followed:
    """Which gateway leads: the first by name that answers."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._silent: dict[str, float] = {}
        self._tried: dict[str, float] = {}

    def choose(self, now: float, gateways: tuple[str, ...]) -> str:
        """The one to ask now."""
        for name in sorted({*gateways, self._own}):
            if name == self._own:
                break
            since = self._silent.get(name)
            if since is None or now - since < _SILENT_SECONDS or now - self._tried[name] >= _AGAIN_SECONDS:
                return name
        return self._own

    def answered(self, name: str) -> None:
        """It did."""
        self._silent.pop(name, None)

    def failed(self, now: float, name: str) -> bool:
        """It did not. Says whether that is news."""
        self._tried[name] = now
        new = name not in self._silent
        self._silent.setdefault(name, now)
        return new


class Known(NamedTuple):
    """What the exchange needs of the newest snapshot."""

    rights: Mapping[str, Rights]
    gateways: tuple[str, ...]
    """Addresses of all gateways' exchange, ``host:port``."""
    refused: frozenset[str] = frozenset()
    """Owners of tokens who are not let in."""

    def limits(self) -> Limited:
        """Who has any."""
        named = {name: own.limits for name, own in self.rights.items() if any(own.limits)}
        return Limited(named, self.refused | {name for name in self.rights.keys() - named.keys() if is_identity(name)})


class Exchange:
    """One gateway's end of the exchange."""

    def __init__(
        self, settings: Settings, dataplane: DataPlane, known: Callable[[], Known], store: Store | None = None
    ) -> None:
        """`store`: where what is spent of a day outlives all gateways."""
        self._dataplane, self._store = dataplane, store
        self._written, self._written_at = Day(), float("-inf")
        self._leads = False
        self._known = known
        self._seal = read_seal(settings.share_key_file)
        self.own = own_name(settings.share_listen, os.environ.get("POD_IP", ""))
        self._leading, self._followed, self._demand = Leading(), Followed(self.own), Demand()
        self._heard: dict[str, int] = {}
        self._reading = 0
        self._told: dict[str, tuple[int, ...]] = {}
        self._told_all = float("-inf")
        self.day = ""
        self.spent: dict[str, tuple[int, ...]] = {}
        """Requests and tokens of the day by key, of all gateways together."""

    @property
    def serves(self) -> bool:
        """Whether there is anything to be said to other gateways."""
        return self._seal is not None

    async def run(self) -> None:
        """Exchanges until cancelled."""
        await self.recall()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(_ASKING_SECONDS)) as http:
            while True:
                began = time.monotonic()
                pause = await self.exchange_once(http)
                # However many keys there are, most of the processor is left for the rest.
                await asyncio.sleep(max(pause, 5 * (time.monotonic() - began)) if pause == _BUSY_SECONDS else pause)

    async def recall(self) -> None:
        """Reads what was spent today before this gateway began."""
        if self._store:
            self._written = await self._store.read()
            self.day, self.spent = self._written.day, dict(self._written.spent)

    async def exchange_once(self, http: aiohttp.ClientSession | None = None) -> float:
        """Tells, is told, and keeps to it. Returns the seconds until the next time. `http`: to ask others by."""
        known = self._known()
        if not (own_limits := known.limits()).named:
            return _UNLIMITED_SECONDS
        try:
            pause = await self._once(http, own_limits, known.gateways[:MOST_GATEWAYS])
        except CommandError as error:
            log.debug("Could not share limits: %s", error)
            return _REST_SECONDS
        await self.keep(own_limits.named)
        return pause

    async def keep(self, own_limits: Mapping[str, Limits], *, all_of_it: bool = False) -> None:
        """Writes what is spent where this gateway leads and it is worth it; with `all_of_it` also the last bit."""
        if self._store is None or not self._leads:
            return
        now = time.monotonic()
        if now - self._written_at < WRITE_SECONDS and not all_of_it:
            return
        day = Day(self.day, budgets(self.spent, own_limits))
        if is_news(self._written, day, own_limits, all_of_it=all_of_it):
            self._written_at = now
            if await self._store.write(day):
                self._written = day

    async def leave(self) -> None:
        """Keeps what is spent before this gateway ends."""
        await self.keep(self._known().limits().named, all_of_it=True)

    async def _once(self, http: aiohttp.ClientSession | None, own_limits: Limited, gateways: tuple[str, ...]) -> float:
        """One exchange; returns the seconds until the next. Raises CommandError."""
        day = dt.datetime.now(dt.UTC).strftime("%Y%m%d")
        if day != self.day:
            self.day, self.spent = day, {}
        counted, written = await self._dataplane.shares(day)
        demand = self._demand.look(counted)
        if time.monotonic() - self._told_all >= _TELL_SECONDS:
            self._told, self._told_all = {}, time.monotonic()
        owners = _owners(own_limits, counted, written, demand)
        standings = {}
        for key in (*own_limits.named, *owners):
            one, share = counted.get(key, limits.UNUSED), written.get(key) or written.get(own_limits.record(key))
            mine = share.share if share else (0,) * len(one.used)
            if share is None or any(one.used) or demand.get(key) or self._told.get(key) != mine or key in owners:
                standings[key] = Standing(one.used, mine, one.spent, demand.get(key, 0.0))
        shares = await self._ask(http, standings, own_limits, gateways)
        self._told = {key: old for key, old in self._told.items() if key in own_limits.named}
        self._told.update((key, one.share) for key, one in standings.items())
        if shares is not None:
            self.spent.update((key, one.spent) for key, one in shares.items() if any(one.spent))
            told = {key: one for key, one in shares.items() if own_limits.of(key)}
            await self._dataplane.share(told, written, [key for key in owners if key in written and key not in shares])
        news = any(key not in written for key in own_limits.named)
        return _BUSY_SECONDS if any(demand.values()) or news else _REST_SECONDS

    async def _ask(
        self,
        http: aiohttp.ClientSession | None,
        standings: dict[str, Standing],
        own_limits: Limited,
        gateways: tuple[str, ...],
    ) -> dict[str, Share] | None:
        """The shares that the leader tells; None where it does not answer."""
        now, seal = time.monotonic(), self._seal
        self._leads = False
        name = self._followed.choose(now, gateways)
        if http is None or seal is None or name == self.own:
            self._leads = True
            leader = self._leading.now(now, self.day, self.spent)
            shares = leader.hear(now, self.own, standings, own_limits, gateways)
            self.spent.update(leader.spent()[1])
            return shares
        try:
            shares = await self._ask_other(http, seal, name, standings)
        except _RefusedError as error:
            if self._followed.failed(now, name):
                log.warning("The gateway %s, which shares limits out, does not answer: %s", name, error)
            return None
        self._followed.answered(name)
        return shares

    async def _ask_other(
        self, http: aiohttp.ClientSession, seal: Seal, name: str, standings: dict[str, Standing]
    ) -> dict[str, Share]:
        """Raises _RefusedError."""
        spent = {key: (known[0], known[1]) for key in standings if (known := self.spent.get(key))}
        report = Report(self.own, name, time.time_ns(), self.day, spent, standings)
        body = msgspec.json.encode(report)
        signature = seal.of(b"report", body)
        try:
            async with http.post(f"http://{name}{PATH}", data=body, headers={_SIGNATURE: signature}) as response:
                if response.status != web.HTTPOk.status_code:
                    raise _RefusedError(f"status {response.status}")
                text = await _bounded(response)
                if not seal.fits(response.headers.get(_SIGNATURE, ""), b"answer", signature.encode(), text):
                    raise _RefusedError("its answer has no signature of a gateway")
                return msgspec.json.decode(text, type=Answer).shares
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as error:
            raise _RefusedError(str(error) or type(error).__name__) from error

    def application(self) -> web.Application:
        """What other gateways ask."""
        made = web.Application(client_max_size=_MOST_BYTES)
        made.add_routes([web.post(PATH, self._answer)])
        return made

    async def _answer(self, request: web.Request) -> web.Response:
        if self._reading >= _MOST_AT_ONCE:
            return web.Response(status=503)
        self._reading += 1
        try:
            async with asyncio.timeout(_ASKING_SECONDS):
                body = await request.read()
        except TimeoutError:
            return web.Response(status=408)
        finally:
            self._reading -= 1
        signature, seal = request.headers.get(_SIGNATURE, ""), self._seal
        if seal is None or not seal.fits(signature, b"report", body):
            return web.Response(status=403)
        try:
            report = msgspec.json.decode(body, type=Report)
        except msgspec.DecodeError:
            return web.Response(status=400)
        if not self._is_new(report):
            return web.Response(status=403)
        text = msgspec.json.encode(Answer(self._hear(report)))
        return web.Response(body=text, headers={_SIGNATURE: seal.of(b"answer", signature.encode(), text)})

    def _is_new(self, report: Report) -> bool:
        """Whether a report is for us, of this moment, and not one that was seen before."""
        age = abs(time.time_ns() - report.at) / 1e9
        if report.to != self.own or age > _AGE_SECONDS or report.at <= self._heard.get(report.sender, 0):
            return False
        oldest = time.time_ns() - int(2 * _AGE_SECONDS * 1e9)
        self._heard = {sender: at for sender, at in self._heard.items() if at > oldest}
        self._heard[report.sender] = report.at
        return True

    def _hear(self, report: Report) -> dict[str, Share]:
        known, now = self._known(), time.monotonic()
        leader = self._leading.now(now, self.day, self.spent)
        leader.remember(report.day, report.spent)
        return leader.hear(now, report.sender, report.standings, known.limits(), known.gateways[:MOST_GATEWAYS])


def _owners(
    own_limits: Limited, counted: Mapping[str, Counted], written: Mapping[str, Share], demand: Mapping[str, float]
) -> dict[str, None]:
    """Owners of tokens who have shares of their own, and those who need some, as those of all are too small."""
    own, common = own_limits.named.get(ALL), written.get(ALL)
    if own is None or common is None:
        return {}
    found = dict.fromkeys(key for key in written if own_limits.borrows(key))
    for key, one in counted.items():
        if len(found) >= _MOST_OWNERS:
            break
        if demand.get(key) and own_limits.borrows(key) and one.needs_more(common.share, own):
            found[key] = None
    return found


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    """Raises _RefusedError for an answer that is too large."""
    text = bytearray()
    async for piece in response.content.iter_chunked(1 << 16):
        text += piece
        if len(text) > _MOST_BYTES:
            raise _RefusedError("its answer is too large")
    return bytes(text)


def own_name(listen: str, pod_ip: str) -> str:
    """By which other gateways know the one that listens there, in the pod with that address."""
    host, port = address(listen)
    return endpoint(pod_ip or host, port)
