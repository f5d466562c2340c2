"""The exchange of counts between gateways that share limits. This module does the I/O for ``ledger.py``.

While limited requests arrive, each gateway reads HAProxy's counts several times a second, polls every other gateway for
changes, and sends new grants to HAProxy. A gateway that does not respond in time is retried in the background, so that
it does not delay the others.

Another gateway takes part in the limits while its pod is Ready, or while it responds. Otherwise it is starting or
terminating, and gets no traffic.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
from prometheus_client import CollectorRegistry, Gauge

from slipway.decoding import DecodingError, decode_json, describe_error
from slipway.gateway.control.exchange_port import ExchangePort
from slipway.gateway.haproxy.dataplane import write_files
from slipway.gateway.haproxy.socket import CommandError
from slipway.gateway.routing.keys import Limits, Rights
from slipway.gateway.rules.limits import HolderEntry
from slipway.gateway.settings import Settings, join_address, split_address
from slipway.gateway.shared_limits.holders import Saved
from slipway.gateway.shared_limits.ledger import Ledger
from slipway.gateway.shared_limits.seal import SIGNATURE, Request, Seal, SealError, load_seal
from slipway.gateway.shared_limits.usage import MOST_BYTES, Report, Used

log = logging.getLogger(__name__)

FILE = "usage.json"
_STEP_SECONDS = 0.1
"""Minimum pause between two rounds in seconds. A request waits much longer for a grant (``limits.lua``)."""
_PAUSE_FACTOR = 4
"""Length of the pause after a long round, as a multiple of the time by which the round exceeded ``_REPLY_SECONDS``."""
_REPLY_SECONDS = 0.4
"""Timeout for a gateway that answered the last request."""
_RETRY_SECONDS = 2.0
"""Timeout for a gateway that did not answer the last request, and pause between two requests to it."""
_QUIET_SECONDS = 1.0
"""Seconds between two exchanges while no limited requests arrive."""
_START_SECONDS = 5.0
"""Seconds for which a new process waits for the counts of the other gateways before it grants requests."""
_SAVE_SECONDS = 1.0
_MOST_FILE = 16 << 20
"""Maximum size of the file with the counts in bytes. While a new file replaces the old file, both use the pod's
memory."""


class ExchangeSnapshot(NamedTuple):
    """The part of the latest snapshot of the cluster that the exchange needs."""

    rights: Mapping[str, Rights]
    gateways: Mapping[str, bool]
    """``host:port`` of a gateway's exchange -> whether the gateway's pod is Ready."""


def select_shared_limits(rights: Mapping[str, Rights]) -> dict[str, Limits]:
    """Return the limits of each API key or subject, by name. Omit keys and subjects without a limit that all gateways
    enforce together."""
    limits = ((name, own.limits) for name, own in rights.items())
    return {name: own for name, own in limits if own.shared}


class Limiter(Protocol):
    """The interface to HAProxy, which counts requests and tokens and enforces grants. ``DataPlane`` implements it."""

    async def read_entries(self, *, everything: bool = False) -> dict[str, HolderEntry]: ...

    async def collect_tokens(self, totals: Counter[str]) -> None: ...

    async def grant(self, grants: Iterable[tuple[str, str, str]]) -> None: ...

    async def drop(self, drops: Iterable[tuple[str, str, int]]) -> list[tuple[str, str]]: ...


class Clock:
    """The wall clock, for dates and messages, and a steady clock, for durations. The steady clock never jumps."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def wall(self) -> float:
        """Return the Unix time in seconds, according to the system's clock."""
        return time.time()

    def steady(self) -> float:
        """Return the Unix time at the start of the process, plus the elapsed time, in seconds."""
        return self._offset + time.monotonic()


class Exchange:
    """One gateway's side of the exchange of counts, with the ledger of the gateway."""

    def __init__(
        self,
        settings: Settings,
        limiter: Limiter,
        get_snapshot: Callable[[], ExchangeSnapshot | None],
        registry: CollectorRegistry,
        clock: Clock | None = None,
    ) -> None:
        """``get_snapshot`` returns None before the first snapshot."""
        self._settings, self._limiter, self._get_snapshot, self._clock = (
            settings,
            limiter,
            get_snapshot,
            clock or Clock(),
        )
        self._rights: Mapping[str, Rights] = {}
        """Rights whose limits are in the ledger."""
        self._seal: Seal | None = None
        self._key_error = ""
        """Reason why the key cannot be used, as last logged."""
        host, port = split_address(settings.exchange_listen)
        self.own = join_address(os.environ.get("POD_IP", "") or host or "127.0.0.1", port)
        self._epoch = secrets.token_hex(16)
        self.ledger = Ledger(self.own, secrets.token_hex(16), self._epoch)
        self.prepared = asyncio.Event()
        """Event that is set once the gateway has granted requests, or there is nothing to grant."""
        self._path = settings.directory / FILE
        self._needs_all_entries = True
        self._has_counts = False
        """Whether HAProxy's counts and grants have been read. Until then, this gateway reports nothing to others."""
        self._new_tokens = Counter[str]()
        """Holder -> number of tokens from HAProxy that are not in the ledger yet."""
        self._started_at = float("inf")
        """Steady time at which this process got its first snapshot; infinite until then."""
        self._exchanged_at = self._saved_at = self._peers_busy_at = float("-inf")
        """Steady times of the last exchange, of the last write of the file, and of the last report that limited
        requests arrive at another gateway."""
        self._saved_version = 0
        self._save_error = ""
        """Reason why the counts could not be saved, as last logged."""
        self._busy = False
        """Whether limited requests arrive at this gateway."""
        self._reported: set[str] = set()
        """Unresponsive gateways for which a warning has been logged."""
        self._retries: dict[str, asyncio.Task[None]] = {}
        self.port = ExchangePort(self._gateway_hosts, self._reply_to)
        text = "Gateways that do not report their use of the limits."
        self._silent = Gauge("slipway_gateway_exchange_silent", text, registry=registry)

    async def run(self) -> None:
        """Exchange counts with the other gateways until cancelled."""
        self.restore()
        try:
            while True:
                began = time.monotonic()
                limited = await self.step()
                if limited and self._settings.exchange_key_file:
                    await self.port.open(self._settings.exchange_listen)
                pause = max(_STEP_SECONDS, _PAUSE_FACTOR * (time.monotonic() - began - _REPLY_SECONDS))
                await asyncio.sleep(pause if limited or not self.prepared.is_set() else _QUIET_SECONDS)
        finally:
            self.port.close()
            for task in self._retries.values():
                task.cancel()

    async def step(self) -> bool:
        """Run a round if there are shared limits, or holders that had some. Return whether there are any.

        Do nothing without a snapshot, because no holder would seem to have limits.
        """
        snapshot = self._get_snapshot()
        if snapshot is None:
            return False
        self._started_at = min(self._started_at, self._clock.steady())
        if snapshot.rights is not self._rights:
            self._rights, self.ledger.limits = snapshot.rights, select_shared_limits(snapshot.rights)
        limited = bool(self.ledger.limits or self.ledger.holders)
        if limited:
            await self.try_round(snapshot)
        else:
            self._silent.set(0)
            self.prepared.set()
        return limited

    async def try_round(self, snapshot: ExchangeSnapshot) -> None:
        """Run a round of the exchange. Log a failure instead of raising it, because the next round retries the failed
        steps."""
        try:
            await self.run_round(snapshot)
        except CommandError as error:
            self._needs_all_entries = True  # an answer of HAProxy may be lost
            log.debug("Could not exchange limits: %s", error)
        except OSError as error:
            if str(error) != self._save_error:
                self._save_error = str(error)
                log.warning("Could not save the use of limits: %s", error)

    async def run_round(self, snapshot: ExchangeSnapshot) -> None:
        """Read HAProxy's counts, exchange them with other gateways, and grant requests.

        Raise CommandError if HAProxy does not respond, and OSError if the file cannot be saved.
        """
        now, ledger = self._clock.steady(), self.ledger
        await self._update_ledger(now)
        if self._settings.exchange_key_file:
            await self._exchange(now, snapshot)
        due = ledger.next_holders()
        ledger.confirm_drops(await self._limiter.drop(ledger.expire(now, due)))
        if self._may_grant(now):
            granted = ledger.build_grants(now, self._day_end(), due)
            await self._limiter.grant((holder, birth, grant.encode()) for holder, birth, grant in granted)
            ledger.confirm_grants(granted)
            self.prepared.set()
        self._save(now)

    async def _update_ledger(self, now: float) -> None:
        await self._limiter.collect_tokens(self._new_tokens)
        entries = await self._limiter.read_entries(everything=self._needs_all_entries)
        self._needs_all_entries, self._has_counts = False, True
        ledger, new_tokens = self.ledger, self._new_tokens
        self._new_tokens = Counter()
        ledger.begin_day(self._clock.wall())
        for holder, one in entries.items():
            ledger.observe(now, holder, one.birth, one.requests, waiting=one.waiting, until=one.until)
        for holder, tokens in new_tokens.items():
            ledger.count(now, holder, Used(0, tokens))
        self._busy = bool(entries or new_tokens) or any(own.eager for own in ledger.holders.values())

    async def _exchange(self, now: float, snapshot: ExchangeSnapshot) -> None:
        gateways = {one: ready for one, ready in snapshot.gateways.items() if one != self.own}
        busy = self._busy or now - self._peers_busy_at < _QUIET_SECONDS
        if busy or now - self._exchanged_at >= _QUIET_SECONDS:
            self._exchanged_at = now
            await self._poll_gateways(gateways)
        peers = self.ledger.gateways.peers
        silent = [one for one in sorted(gateways) if one not in peers or not peers[one].fresh]
        counted = [one for one, ready in sorted(gateways.items()) if ready or one not in silent]
        self.ledger.set_gateways(now, counted)
        self._silent.set(len(set(counted) & set(silent)))

    def _may_grant(self, now: float) -> bool:
        """Whether all other gateways that share the limits have reported all their records, or have had
        ``_START_SECONDS`` to do so."""
        peers = self.ledger.gateways.peers
        answered = all(one in peers and peers[one].complete for one in self.ledger.gateways.addresses)
        return answered or now - self._started_at >= _START_SECONDS

    def _day_end(self) -> float:
        """Return the Unix time at which the ledger's day ends."""
        day = dt.datetime.fromisoformat(self.ledger.days.day).replace(tzinfo=dt.UTC)
        return (day + dt.timedelta(days=1)).timestamp()

    # Restarts of this container

    def restore(self) -> None:
        """Restore the counts of the previous process in this pod from the file, if it is readable."""
        try:
            saved = decode_json(self._path.read_bytes(), Saved, most=_MOST_FILE)
        except FileNotFoundError:
            return
        except (OSError, DecodingError) as error:
            log.warning("Could not read the use of limits before the restart: %s", describe_error(error))
            return
        self.ledger.begin_day(self._clock.wall())
        self.ledger.restore(self._clock.steady(), saved)

    def _save(self, now: float) -> None:
        if self.ledger.version != self._saved_version and now - self._saved_at >= _SAVE_SECONDS:
            version, text = self.ledger.version, msgspec.json.encode(self.ledger.save(now)).decode()
            self._saved_at = now
            if len(text) > _MOST_FILE:
                raise OSError(f"it would take more than {_MOST_FILE} bytes")
            write_files(Path(self._settings.directory), {FILE: text})
            self._saved_version, self._save_error = version, ""

    # Requests to other gateways

    def _load_seal(self) -> Seal | None:
        """Return the seal, or None while the key cannot be used. Without a seal, this gateway cannot poll the others
        and uses its equal share of the limits."""
        if self._seal is None:
            try:
                self._seal = load_seal(self._settings.exchange_key_file)
            except (OSError, ValueError) as error:
                if str(error) != self._key_error:
                    self._key_error = str(error)
                    text = "Could not read the key of the exchange, so this gateway uses its equal part: %s"
                    log.error(text, error)  # noqa: TRY400 - its cause is in the text
        return self._seal

    async def _poll_gateways(self, gateways: Iterable[str]) -> None:
        """Poll the gateways that answered the last request, and wait for their answers. Poll the others in the
        background."""
        seal, peers = self._load_seal(), self.ledger.gateways.peers
        if seal is None:
            return
        now = [one for one in gateways if one in peers and peers[one].fresh]
        for one in gateways:
            if one not in now and one not in self._retries:
                self._retries[one] = asyncio.create_task(self._retry_gateway(seal, one))
        await asyncio.gather(*(self._poll_gateway(seal, one, _REPLY_SECONDS) for one in now))

    async def _retry_gateway(self, seal: Seal, gateway: str) -> None:
        try:
            if not await self._poll_gateway(seal, gateway, _RETRY_SECONDS):
                await asyncio.sleep(_RETRY_SECONDS)
        finally:
            self._retries.pop(gateway, None)

    async def _poll_gateway(self, seal: Seal, gateway: str, seconds: float) -> bool:
        """Request reports from a gateway until it has sent all records. Return whether all requests succeeded within
        ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                more = True
                while more:
                    report = await _request_report(seal, gateway, self._build_request(gateway))
                    self.ledger.merge_report(self._clock.steady(), gateway, report)
                    more = report.more
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            self.ledger.mark_silent(gateway)
            if self._gateways().get(gateway):
                self._log_silent_gateway(gateway, error)
            return False
        self._reported.discard(gateway)
        return True

    def _build_request(self, gateway: str) -> Request:
        peer = self.ledger.gateways.peers.get(gateway)
        epoch, since, complete = (peer.epoch, peer.version, not peer.complete) if peer else ("", 0, True)
        nonce, at = secrets.token_hex(16), int(self._clock.wall())
        return Request(gateway, nonce, at, self._epoch, self.own, self._busy, epoch, since, complete)

    def _log_silent_gateway(self, gateway: str, error: Exception) -> None:
        """Log an error of a gateway, but only the first of several consecutive errors."""
        self._reported &= self._gateways().keys()
        if gateway not in self._reported:
            self._reported.add(gateway)
            log.warning("Gateway %s does not report its use of limits: %s", gateway, describe_error(error))

    def _gateways(self) -> Mapping[str, bool]:
        snapshot = self._get_snapshot()
        return snapshot.gateways if snapshot else {}

    def _gateway_hosts(self) -> set[str]:
        return {split_address(gateway)[0] for gateway in self._gateways()}

    # Answers to other gateways

    def _reply_to(self, line: bytes) -> bytes:
        """Return the sealed answer to a gateway's request. Raise SealError if the request is invalid, and ValueError
        if this gateway cannot answer yet."""
        seal = self._load_seal()
        if seal is None:
            raise ValueError("this gateway has no key")
        request = seal.open_request(line, self.own, self._clock.wall())
        return seal.seal_answer(request.nonce, self.build_report(request))

    def build_report(self, request: Request) -> Report:
        """Return the report that answers another gateway's request. Raise ValueError before HAProxy's counts have
        been read."""
        if not self._has_counts:
            raise ValueError("this gateway has just started")
        now = self._clock.steady()
        if request.busy:
            self._peers_busy_at = now
        return self.ledger.build_report(
            now,
            request.epoch,
            request.since,
            asker=request.asker,
            address=request.address,
            complete=request.complete,
        )


async def _request_report(seal: Seal, gateway: str, request: Request) -> Report:
    """Send one request to a gateway and return its report. Raise OSError if the connection fails, and SealError if the
    answer is missing or invalid."""
    reader, writer = await asyncio.open_connection(*split_address(gateway), limit=1 << 16)
    try:
        writer.write(seal.seal_request(request))
        await writer.drain()
        answer = bytearray()
        while piece := await reader.read(1 << 16):
            answer += piece
            if len(answer) > MOST_BYTES + SIGNATURE:
                raise SealError(f"more than {MOST_BYTES} bytes")
        if not answer:
            raise SealError("it refused the request, or has just started")
        return seal.open_answer(request.nonce, bytes(answer))
    finally:
        writer.close()
