"""Gateways tell each other what keys have used, and keep to their shares of the limits. All I/O for sharing.py is here.

Every moment each gateway tells the one that leads (the first by address that answers) what has changed of where it
stands, and writes the shares that it is told into HAProxy's map. Every two seconds it tells all. Both texts are signed
with a key that the gateways alone have, name who they are for and when they were written, and are worth nothing a
second time. Without the key each gateway is on its own.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import hmac
import logging
import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import aiohttp
import msgspec
from aiohttp import web

from slipway.gateway import limits
from slipway.gateway.dataplane import DataPlane
from slipway.gateway.haproxy_socket import CommandError
from slipway.gateway.keys import ALL, ALL_ACCOUNTS, Limited, Limits, Rights, is_identity
from slipway.gateway.limits import Counted
from slipway.gateway.settings import Settings, address, endpoint
from slipway.gateway.sharing import (
    LEASE_SECONDS,
    MINUTE_SECONDS,
    MOST_GATEWAYS,
    MOST_OWNERS,
    NOTHING,
    Leader,
    Share,
    Standing,
    Told,
)
from slipway.gateway.spent import WRITE_SECONDS, Day, Store, budgets, is_news, most

log = logging.getLogger(__name__)

PATH = "/shares"
_SIGNATURE = "x-slipway-signature"
_BUSY_SECONDS, _REST_SECONDS = 0.1, 0.5
"""Between two exchanges, while requests of keys with limits come and while none do. Well below what a request waits for
its key's share (limits.lua): the key may just have got its limit."""
_RECALL_SECONDS = 5.0
"""Between two tries to read what was spent before."""
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
_MOST_READ = 16 << 20
"""Bytes of all messages that are being read, of which nobody knows yet who wrote them."""
_LEAST_KEY = 32
"""Bytes of a key for signing."""
_TELL_SECONDS = LEASE_SECONDS - 1
"""So often a gateway tells all that it keeps to, as the one that leads may have begun anew. Between, what changed."""
_DEMAND_KEPT = 0.8
_NO_DEMAND = 0.05


class UsageReport(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
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
    whole: bool = True
    """Whether these are all, or those alone that changed since the report before."""


class Answer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What it is told back."""

    shares: dict[str, Share]
    day: str
    """Of which day they say what is spent."""
    used: dict[str, tuple[int, ...]] = {}
    """What the one that leads has used itself, of these keys. Its successor counts it on."""


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
        self._before, self._used = "", dict[str, tuple[float, tuple[int, ...]]]()

    def follow(self, moment: float, name: str, used: Mapping[str, tuple[int, ...]]) -> None:
        """Remembers what the gateway that leads says to have used of some keys."""
        if name != self._before:
            self._before, self._used = name, {}
        self._used.update((key, (moment, one)) for key, one in used.items())

    def now(self, moment: float) -> Leader:
        """The leader to ask at this moment."""
        if self._leader is None or moment - self._asked > LEASE_SECONDS:
            self._leader = Leader()
            if self._before:
                used = {key: one for key, (then, one) in self._used.items() if moment - then <= MINUTE_SECONDS}
                self._leader.mourn(moment, self._before, used)
                self._before, self._used = "", {}
        self._asked = moment
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
        self._recalled = store is None
        self._leads = False
        self._known = known
        self._seal = read_seal(settings.share_key_file)
        self.own = own_name(settings.share_listen, os.environ.get("POD_IP", ""))
        self._leading, self._followed, self._demand = Leading(), Followed(self.own), Demand()
        self._heard: dict[str, int] = {}
        self._reading: list[int] = []
        self._told: dict[str, Standing] = {}
        self._told_to, self._told_at = "", float("-inf")
        """Which gateway was told, and when it was told all."""
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
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._recall_later())
            tasks.create_task(self._exchange())

    async def _recall_later(self) -> None:
        """Until it is known what was spent before."""
        while not self._recalled:
            await asyncio.sleep(_RECALL_SECONDS)
            await self.recall()

    async def _exchange(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(_ASKING_SECONDS)) as http:
            while True:
                began = time.monotonic()
                pause = await self.exchange_once(http)
                # However many keys there are, most of the processor is left for the rest.
                await asyncio.sleep(max(pause, 5 * (time.monotonic() - began)) if pause == _BUSY_SECONDS else pause)

    async def recall(self) -> None:
        """Reads what was spent today before this gateway began, or by others since it did."""
        stored = await self._store.read() if self._store else None
        self._recalled = stored is not None
        if stored is None:
            return
        self._written = stored
        if stored.day > self.day:
            self.day, self.spent = stored.day, dict(stored.spent)
        elif stored.day == self.day:
            self.spent = most(self.spent, stored.spent)

    async def exchange_once(self, http: aiohttp.ClientSession | None = None) -> float:
        """Tells, is told, and keeps to it. Returns the seconds until the next time. `http`: to ask others by."""
        known = self._known()
        if not (own_limits := known.limits()).named:
            return _REST_SECONDS
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
            await self.recall()  # others may know more, also of before this gateway began
            day = Day(self.day, budgets(self.spent, own_limits))
            if self._recalled and await self._store.write(day):
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
        now = time.monotonic()
        leader = self._choose(now, http, gateways)
        owners = _owners(own_limits, counted, written, demand)
        standings = {
            key: _standing(counted.get(key, limits.UNUSED), _kept(own_limits, written, key), demand.get(key, 0.0))
            for key in (*own_limits.named, *owners)
        }
        whole = leader != self._told_to or now - self._told_at >= _TELL_SECONDS
        waiting = {key for key in standings if not _knows(own_limits, written, key)}
        told = {key: one for key, one in standings.items() if whole or key in waiting or self._told.get(key) != one}
        shares = await self._ask(http, leader, Told(day, told, self.spent, whole), own_limits, gateways)
        self._remember(now, leader if shares is not None else "", told, standings.keys(), whole=whole)
        if shares is not None:
            ended = [key for key in owners if key in written and key in told and key not in shares]
            await self._dataplane.share({key: one for key, one in shares.items() if own_limits.of(key)}, written, ended)
        return _BUSY_SECONDS if waiting or any(demand.values()) else _REST_SECONDS

    def _choose(self, now: float, http: aiohttp.ClientSession | None, gateways: tuple[str, ...]) -> str:
        """The gateway that leads."""
        return self._followed.choose(now, gateways) if http is not None and self._seal is not None else self.own

    def _remember(
        self, now: float, leader: str, told: Mapping[str, Standing], known: Collection[str], *, whole: bool
    ) -> None:
        """What the leader has heard of keys. `leader`: nobody where it did not answer, so that it is told all again."""
        self._told_to = leader
        if whole:
            self._told_at = now
        self._told = {key: one for key, one in {**self._told, **told}.items() if key in known}

    async def _ask(
        self,
        http: aiohttp.ClientSession | None,
        name: str,
        told: Told,
        own_limits: Limited,
        gateways: tuple[str, ...],
    ) -> dict[str, Share] | None:
        """The shares that the one which leads tells; None where it does not answer."""
        now, seal = time.monotonic(), self._seal
        self._leads = name == self.own
        if self._leads or http is None or seal is None:
            leader = self._leading.now(now)
            shares = leader.hear(now, self.own, told, own_limits, gateways)
            led_day, spent = leader.spent()
            if led_day == self.day:
                self.spent.update(spent)
            return shares
        try:
            answer = await self._ask_other(http, seal, name, told)
        except _RefusedError as error:
            if self._followed.failed(now, name):
                log.warning("The gateway %s, which shares limits out, does not answer: %s", name, error)
            return None
        self._followed.answered(name)
        self._leading.follow(now, name, {key: answer.used.get(key, NOTHING) for key in answer.shares})
        if answer.day == self.day:
            self.spent.update((key, one.spent) for key, one in answer.shares.items() if any(one.spent))
        return answer.shares

    async def _ask_other(self, http: aiohttp.ClientSession, seal: Seal, name: str, told: Told) -> Answer:
        """Raises _RefusedError."""
        spent = {key: (known[0], known[1]) for key in told.standings if (known := told.spent.get(key))}
        report = UsageReport(self.own, name, time.time_ns(), told.day, spent, dict(told.standings), told.whole)
        body = msgspec.json.encode(report)
        signature = seal.of(b"report", body)
        try:
            async with http.post(f"http://{name}{PATH}", data=body, headers={_SIGNATURE: signature}) as response:
                if response.status != web.HTTPOk.status_code:
                    raise _RefusedError(f"status {response.status}")
                text = await _bounded(response)
                if not seal.fits(response.headers.get(_SIGNATURE, ""), b"answer", signature.encode(), text):
                    raise _RefusedError("its answer has no signature of a gateway")
                return msgspec.json.decode(text, type=Answer)
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as error:
            raise _RefusedError(str(error) or type(error).__name__) from error

    def application(self) -> web.Application:
        """What other gateways ask."""
        made = web.Application(client_max_size=_MOST_BYTES)
        made.add_routes([web.post(PATH, self._answer)])
        return made

    async def _answer(self, request: web.Request) -> web.Response:
        size = request.content_length
        if size is None or "content-encoding" in request.headers:
            return web.Response(status=411)  # how much memory it takes is not known
        if size > _MOST_BYTES:
            return web.Response(status=413)
        if len(self._reading) >= _MOST_AT_ONCE or sum(self._reading) + size > _MOST_READ:
            return web.Response(status=503)
        self._reading.append(size)
        try:
            async with asyncio.timeout(_ASKING_SECONDS):
                body = await request.read()
        except TimeoutError:
            return web.Response(status=408)
        finally:
            self._reading.remove(size)
        signature, seal = request.headers.get(_SIGNATURE, ""), self._seal
        if seal is None or not seal.fits(signature, b"report", body):
            return web.Response(status=403)
        try:
            report = msgspec.json.decode(body, type=UsageReport)
        except msgspec.DecodeError:
            return web.Response(status=400)
        if not self._is_new(report):
            return web.Response(status=403)
        if self._followed.choose(time.monotonic(), self._known().gateways) != self.own:
            return web.Response(status=409)  # two that lead would share out the same
        text = msgspec.json.encode(self._hear(report))
        return web.Response(body=text, headers={_SIGNATURE: seal.of(b"answer", signature.encode(), text)})

    def _is_new(self, report: UsageReport) -> bool:
        """Whether a report is for us, of this moment, and not one that was seen before."""
        age = abs(time.time_ns() - report.at) / 1e9
        if report.to != self.own or age > _AGE_SECONDS or report.at <= self._heard.get(report.sender, 0):
            return False
        oldest = time.time_ns() - int(2 * _AGE_SECONDS * 1e9)
        self._heard = {sender: at for sender, at in self._heard.items() if at > oldest}
        self._heard[report.sender] = report.at
        return True

    def _hear(self, report: UsageReport) -> Answer:
        known, now = self._known(), time.monotonic()
        leader = self._leading.now(now)
        leader.remember(self.day, self.spent)
        told = Told(report.day, report.standings, report.spent, report.whole)
        shares = leader.hear(now, report.sender, told, known.limits(), known.gateways[:MOST_GATEWAYS])
        return Answer(shares, leader.spent()[0], leader.used_by(self.own, shares))


def _kept(own_limits: Limited, written: Mapping[str, Share], key: str) -> Share | None:
    """The share that HAProxy keeps to: one of the key's own, or that of all owners of tokens."""
    return written.get(key) or written.get(own_limits.record(key))


def _knows(own_limits: Limited, written: Mapping[str, Share], key: str) -> bool:
    """Whether HAProxy has a share of each of a key's limits."""
    share, own = _kept(own_limits, written, key), own_limits.of(key)
    return share is not None and own is not None and share.knows(own)


def _standing(counted: Counted, share: Share | None, demand: float) -> Standing:
    """Where this gateway stands with a key."""
    kept = tuple(max(part, 0) for part in share.share) if share else NOTHING
    return Standing(counted.used, kept, counted.spent, demand)


def _owners(
    own_limits: Limited, counted: Mapping[str, Counted], written: Mapping[str, Share], demand: Mapping[str, float]
) -> dict[str, None]:
    """Owners of tokens who have shares of their own, and those who need some, as those of all are too small."""
    common = {
        name: share.share
        for name in (ALL, ALL_ACCOUNTS)
        if (own := own_limits.named.get(name)) and (share := written.get(name)) and share.knows(own)
    }
    found = dict.fromkeys(key for key in written if own_limits.borrows(key) and own_limits.record(key) in common)
    for key, one in counted.items():
        if len(found) >= MOST_OWNERS:
            break
        record = own_limits.record(key)
        asks = demand.get(key) and key != record and record in common
        if asks and one.needs_more(common[record], own_limits.named[record]):
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
