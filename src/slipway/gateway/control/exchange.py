"""The exchange of counts among gateways, for the limits that they keep together. All I/O around ledger.py is here.

Several times a second, while limited requests arrive, a gateway reads HAProxy's counts, asks each other gateway for
what changed, and hands HAProxy new grants. None of them waits long for another: one that does not answer in time is
asked again apart from the others.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
from prometheus_client import CollectorRegistry, Gauge

from slipway.decoding import DecodingError, decode_json, said
from slipway.gateway.haproxy.dataplane import DataPlane, write_files
from slipway.gateway.haproxy.socket import CommandError
from slipway.gateway.routing.keys import Limits, Rights
from slipway.gateway.settings import Settings, address, endpoint
from slipway.gateway.shared_limits.ledger import Grant, Ledger, Saved
from slipway.gateway.shared_limits.seal import LONGEST_REQUEST, SIGNATURE, Request, Seal, SealError, read_seal
from slipway.gateway.shared_limits.usage import MOST_BYTES, Report, Used

log = logging.getLogger(__name__)

FILE = "usage.json"
_STEP_SECONDS = 0.1
"""Between two rounds: well below the time that a request waits for a grant (limits.lua)."""
_LOAD = 4
"""A round that takes long is followed by a pause of so many times its duration."""
_ASK_SECONDS = 0.4
"""For the answer of a gateway that answered the last time."""
_AGAIN_SECONDS = 2.0
"""For the answer of one that did not, and between two questions to it."""
_QUIET_SECONDS = 1.0
"""Between two exchanges while no limited requests arrive."""
_START_SECONDS = 5.0
"""How long a new process waits for the counts of the others before it grants anything."""
_SAVE_SECONDS = 1.0
_MOST_FILE = 64 << 20
_MOST_GATEWAYS = 64
_MOST_OF_STRANGERS, _MOST_OF_ADDRESS = 128, 8
"""Connections at once from addresses of no gateway, and from one address. Any pod may try to connect."""


class Known(NamedTuple):
    """What the exchange needs of the newest snapshot."""

    rights: Mapping[str, Rights]
    gateways: tuple[str, ...]
    """Addresses of all gateways' exchange, ``host:port``."""

    def limits(self) -> dict[str, Limits]:
        """Limits of keys and subjects that gateways hold together."""
        return {name: own.limits for name, own in self.rights.items() if own.limits.shared}


class Exchange:
    """One gateway's end of the exchange."""

    def __init__(
        self,
        settings: Settings,
        dataplane: DataPlane,
        known: Callable[[], Known],
        registry: CollectorRegistry,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Raises OSError or ValueError if the key file cannot be used."""
        self._settings, self._dataplane, self._known, self._clock = settings, dataplane, known, clock
        self._seal = read_seal(settings.exchange_key_file) if settings.exchange_key_file else None
        host, port = address(settings.exchange_listen)
        self.own = endpoint(os.environ.get("POD_IP", "") or host or "127.0.0.1", port)
        self._epoch = secrets.token_hex(16)
        self.ledger = Ledger(secrets.token_hex(16), self._epoch)
        self._path = settings.directory / FILE
        self._everything = True
        self._began = self._asked = self._saved = float("-inf")
        self._saved_version = 0
        self._busy, self._called = False, float("-inf")
        """Whether limited requests arrive here, and when another gateway said so of itself."""
        self._reported: set[str] = set()
        """Gateways whose silence is in the log."""
        self._retries: dict[str, asyncio.Task[None]] = {}
        self._connections: Counter[str] = Counter()
        text = "Gateways that do not answer how much of the limits they have used."
        self._silent = Gauge("slipway_gateway_exchange_silent", text, registry=registry)

    @property
    def serves(self) -> bool:
        """Whether there are other gateways to exchange counts with."""
        return self._seal is not None

    async def run(self) -> None:
        """Exchanges until cancelled."""
        self.recall()
        if self._seal is None:
            await self._rounds()
            return
        host, port = address(self._settings.exchange_listen)
        server = await asyncio.start_server(self._serve, host or None, port, limit=LONGEST_REQUEST)
        try:
            await self._rounds()
        finally:
            server.close()
            for task in self._retries.values():
                task.cancel()

    async def _rounds(self) -> None:
        while True:
            began = time.monotonic()
            limits = self._known().limits()
            try:
                if limits or self.ledger.entries:
                    await self.round(limits)
            except CommandError as error:
                self._everything = True  # what HAProxy told may be lost
                log.debug("Could not exchange limits: %s", error)
            pause = max(_STEP_SECONDS, _LOAD * (time.monotonic() - began - _ASK_SECONDS))
            await asyncio.sleep(pause if limits else _QUIET_SECONDS)

    async def round(self, limits: Mapping[str, Limits]) -> None:
        """Reads counts, exchanges them, and grants what is left. Raises CommandError."""
        now, ledger = self._clock(), self.ledger
        ledger.limits = limits
        day = dt.datetime.fromtimestamp(now, dt.UTC)
        ledger.begin_day(day.date().isoformat())
        counted, spent = await self._dataplane.used(everything=self._everything)
        self._everything = False
        for holder, one in counted.items():
            ledger.observe(now, holder, one.birth, one.requests, waiting=one.waiting)
        for holder, tokens in spent.items():
            ledger.count(now, holder, Used(0, tokens))
        dropped = ledger.age(now)
        gateways = self._others()
        ledger.keep(now, gateways)
        self._reported &= {*gateways}
        self._busy = bool(counted or spent) or any(entry.eager for entry in ledger.entries.values())
        busy = self._busy or 0 <= now - self._called < _QUIET_SECONDS
        if gateways and self._seal and (busy or now - self._asked >= _QUIET_SECONDS or now < self._asked):
            self._asked = now
            await self._ask_all(self._seal, gateways)
        await self._dataplane.grant([(holder, birth, "drop") for holder, birth in dropped])
        if self._may_grant(now, gateways):
            midnight = dt.datetime.combine(day.date() + dt.timedelta(days=1), dt.time(), dt.UTC).timestamp()
            await self._grant(now, midnight, gateways)
        self._save(now)

    def _others(self) -> tuple[str, ...]:
        if self._seal is None:
            return ()
        return tuple(sorted({*self._known().gateways} - {self.own}))[: _MOST_GATEWAYS - 1]

    def _may_grant(self, now: float, gateways: tuple[str, ...]) -> bool:
        """Whether the others have told what was used before this process began, or had the time to."""
        if self._began == float("-inf"):
            self._began = now
        peers = self.ledger.peers
        answered = all(one in peers and peers[one].complete for one in gateways)
        return answered or not 0 <= now - self._began < _START_SECONDS

    async def _grant(self, now: float, midnight: float, gateways: tuple[str, ...]) -> None:
        ledger, changed = self.ledger, list[tuple[str, str, Grant]]()
        for holder, entry in ledger.entries.items():
            grant = ledger.grant(now, midnight, holder, gateways)
            if grant is not None and grant != entry.sent:
                changed.append((holder, entry.birth, grant))
        for holder, _birth, grant in changed:
            ledger.promise(holder, grant)
        await self._dataplane.grant((holder, birth, grant.text()) for holder, birth, grant in changed)
        for holder, birth, grant in changed:
            ledger.settle(holder, birth, grant)
        ledger.finish()

    # Restarts of this container

    def recall(self) -> None:
        """Continues with what the previous process of this pod counted."""
        try:
            saved = decode_json(self._path.read_bytes(), Saved, most=_MOST_FILE)
        except FileNotFoundError:
            return
        except (OSError, DecodingError) as error:
            log.warning("Could not read what was used of limits before the restart: %s", said(error))
            return
        self.ledger.instance = saved.instance
        self.ledger.restore(self._clock(), saved)

    def _save(self, now: float) -> None:
        if self.ledger.version != self._saved_version and not 0 <= now - self._saved < _SAVE_SECONDS:
            self._saved, self._saved_version = now, self.ledger.version
            write_files(Path(self._settings.directory), {FILE: msgspec.json.encode(self.ledger.save(now)).decode()})

    # Questions to other gateways

    async def _ask_all(self, seal: Seal, gateways: tuple[str, ...]) -> None:
        """Asks all that answered the last time, and waits for them. The others are asked meanwhile."""
        peers = self.ledger.peers
        now = [one for one in gateways if one in peers and peers[one].fresh]
        for one in gateways:
            if one not in now and one not in self._retries:
                self._retries[one] = asyncio.create_task(self._retry(seal, one))
        await asyncio.gather(*(self._ask(seal, one, _ASK_SECONDS) for one in now))
        silent = [one for one in gateways if one not in peers or not peers[one].fresh]
        self._silent.set(len(silent))

    async def _retry(self, seal: Seal, gateway: str) -> None:
        try:
            if not await self._ask(seal, gateway, _AGAIN_SECONDS):
                await asyncio.sleep(_AGAIN_SECONDS)
        finally:
            self._retries.pop(gateway, None)

    async def _ask(self, seal: Seal, gateway: str, seconds: float) -> bool:
        """Asks a gateway until it has told everything. Returns whether it has."""
        try:
            async with asyncio.timeout(seconds):
                more = True
                while more:
                    report = await _ask_once(seal, gateway, self._request(gateway))
                    self.ledger.hear(self._clock(), gateway, report)
                    more = report.more
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            self.ledger.fail(gateway)
            if gateway not in self._reported:
                self._reported.add(gateway)
                text = "Gateway %s does not tell what it used of limits, so an equal part is kept for it: %s"
                log.warning(text, gateway, said(error))
            return False
        self._reported.discard(gateway)
        return True

    def _request(self, gateway: str) -> Request:
        peer = self.ledger.peers.get(gateway)
        nonce, at = secrets.token_hex(16), int(self._clock())
        if peer is None:
            return Request(gateway, nonce, at, self._epoch, self._busy, complete=True)
        return Request(
            gateway, nonce, at, self._epoch, self._busy, peer.epoch, peer.version, complete=not peer.complete
        )

    # Answers

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers one request. A client that is no gateway gets nothing, and soon loses the connection."""
        host = str((writer.get_extra_info("peername") or ("",))[0])
        self._connections[host] += 1
        try:
            if self._admits(host):
                async with asyncio.timeout(_AGAIN_SECONDS):
                    await self._answer(reader, writer)
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError, ValueError) as error:
            log.debug("Refused a request for the use of limits from %s: %s", host, said(error))
        finally:
            self._connections[host] -= 1
            if not self._connections[host]:
                del self._connections[host]
            writer.transport.abort()

    def _admits(self, host: str) -> bool:
        """Whether one more connection of this address gets an answer. Strangers leave gateways their part."""
        gateways = {address(gateway)[0] for gateway in self._known().gateways}
        strangers = sum(number for other, number in self._connections.items() if other not in gateways)
        return self._connections[host] <= _MOST_OF_ADDRESS and (host in gateways or strangers <= _MOST_OF_STRANGERS)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._seal is None:
            return
        now = self._clock()
        request = self._seal.read_request(await reader.readuntil(b"\n"), self.own, now)
        report = self.ledger.report(now, request.epoch, request.since, asker=request.asker, complete=request.complete)
        if request.busy:
            self._called = now
        writer.write(self._seal.answer(request.nonce, report))
        await writer.drain()
        writer.write_eof()
        await reader.read(1)  # until the other side has read all and closes


async def _ask_once(seal: Seal, gateway: str, request: Request) -> Report:
    """Raises OSError, EOFError or SealError."""
    reader, writer = await asyncio.open_connection(*address(gateway), limit=1 << 16)
    try:
        writer.write(seal.request(request))
        await writer.drain()
        answer = bytearray()
        while piece := await reader.read(1 << 16):
            answer += piece
            if len(answer) > MOST_BYTES + SIGNATURE:
                raise SealError(f"more than {MOST_BYTES} bytes")
        return seal.read_answer(request.nonce, bytes(answer))
    finally:
        writer.close()
