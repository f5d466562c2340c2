"""The agent: a loop that compares the desired adapters with the disk and the engine once a second, and acts on the
differences. Downloads run in separate threads."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from slipway.loader.agent.engine import Engine, EngineDownError, EngineRefusedError, EngineUnavailableError
from slipway.loader.agent.plan import Action, Fetch, Load, Remove, Unload, Version, plan
from slipway.loader.agent.store import Memory, Store
from slipway.loader.agent.threads import in_thread
from slipway.loader.disk.progress import Meter
from slipway.loader.transport.errors import LoadError, StoppedError
from slipway.serving.wire.agent import Adapter, AdapterState, AgentReport, Phase, Progress, label

log = logging.getLogger(__name__)
PERIOD = 1.0
FETCHES = 2
"""Maximum number of adapters to download at the same time. Each download uses several threads."""
LONGEST_PAUSE = 300.0
Fetcher = Callable[[str, Version, threading.Event, Meter], None]
"""Function that downloads a URL into the directory of a version, counts the bytes with the meter, and returns when the
version is complete. The function raises LoadError, or StoppedError after the event is set."""


class Fault(msgspec.Struct):
    """A failed action: its message, the number of consecutive failures, and the time of the next attempt on the agent's
    clock."""

    message: str
    count: int = 1
    until: float = 0.0


class Running(msgspec.Struct, frozen=True):
    """A download in progress: its task, the event that stops it, and its progress."""

    task: asyncio.Task[None]
    stop: threading.Event
    meter: Meter


class Agent:
    def __init__(
        self, store: Store, engine: Engine, fetch: Fetcher, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._engine, self._fetch, self._clock = store, engine, fetch, clock
        self._memory = store.recall()
        self._complete, self._partial = store.scan()
        self._loaded: dict[str, str] | None = None
        self._last_actions: set[Action] = set()
        """Actions that succeeded in the last step. An action that the next plan repeats had no effect."""
        self._fetches: dict[Version, Running] = {}
        self._faults: dict[tuple[type[Action], Version], Fault] = {}
        self._wake = asyncio.Event()

    # --- what others see and send ------------------------------------------------------------------------------------

    @property
    def desired(self) -> tuple[Adapter, ...]:
        """The adapters of the controller's last request; empty before the first request."""
        return self._memory.desired or ()

    def accept(self, desired: Sequence[Adapter], order: int) -> bool:
        """Replace the list of adapters to load.

        ``order`` is the time at which the controller signed the request, in Unix nanoseconds. Return False, and change
        nothing, if the last accepted request was signed at this time or later: the new request is then a replay. The
        time is stored on disk, so a restarted loader rejects replays too.
        """
        if order <= self._memory.order:
            return False
        changed = tuple(desired) != self._memory.desired
        names = {adapter.name for adapter in desired}
        loaded = tuple(name for name in self._memory.loaded if name in names)
        self._remember(Memory(tuple(desired), loaded, order))
        if changed:
            self._wake.set()
        return True

    def report(self) -> AgentReport:
        """Return the state of each desired adapter, and the total progress of all downloads, which is None if there are
        none."""
        return AgentReport(tuple(self._state(adapter) for adapter in self.desired), self._progress())

    def missing_adapters(self) -> list[str]:
        """Return the names of the adapters that the engine lost in a restart and must load again. Adapters that are not
        on the disk, or that the engine rejected, are left out."""
        on_disk = {version.name for version in self._complete}
        refused = {version.name for (kind, version) in self._faults if kind is Load}
        return [name for name in self._memory.loaded if name not in (self._loaded or {}) and name in on_disk - refused]

    def _state(self, adapter: Adapter) -> AdapterState:
        phase, message = self._phase(adapter)
        loaded = (self._loaded or {}).get(adapter.name, "")
        url = self._complete.get(Version(adapter.name, loaded))
        return AdapterState(adapter.name, adapter.digest, phase, message, loaded, label(url) if url else "")

    def _phase(self, adapter: Adapter) -> tuple[Phase, str]:
        version = Version(adapter.name, adapter.digest)
        loaded = (self._loaded or {}).get(adapter.name, "")
        fault = self._faults.get((Load, version)) or self._faults.get((Fetch, version))
        if loaded == adapter.digest:
            return "Loaded", ""
        if fault:
            return "Failed", fault.message
        if version in self._complete:
            waits = "waiting to replace the other version" if loaded else "waiting for the engine"
            return "Fetched", waits
        running = self._fetches.get(version)
        return "Fetching", running.meter.line() if running else ""

    def _progress(self) -> Progress | None:
        all_of_them = [running.meter.progress() for running in self._fetches.values()]
        if not all_of_them:
            return None
        done, total = sum(one.done_bytes for one in all_of_them), sum(one.total_bytes for one in all_of_them)
        return Progress(done, total, "; ".join(one.message for one in all_of_them))

    # --- the loop ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Reconcile the adapters once a second, and immediately after a change, until the task is cancelled. Then stop
        all downloads, without waiting for them."""
        try:
            while True:
                if not await self._safe_step():
                    self._wake.clear()
                    try:
                        await asyncio.wait_for(self._wake.wait(), PERIOD)
                    except TimeoutError:
                        continue
        finally:
            for running in self._fetches.values():
                running.stop.set()

    async def _safe_step(self) -> bool:
        """Call ``step`` and return its result. Log any exception and return False, because a bug or a disk error must
        not end the loop."""
        try:
            return await self.step()
        except Exception:
            log.exception("Could not reconcile the adapters")
            return False

    async def step(self) -> bool:
        """Observe the disk and the engine once, and run the actions that are due. Return whether another step should
        follow immediately."""
        await self._observe()
        if self._memory.desired is None:
            return False  # remove nothing before the controller has sent the desired adapters
        self._stop_outdated()
        before, self._last_actions = self._last_actions, set()
        for action in plan(self.desired, self._complete, self._partial, self._loaded):
            fault = self._faults.get((type(action), action.version))
            if action.version in self._fetches or (fault and fault.until > self._clock()):
                continue
            if action in before:
                self._failed(action, "the engine reported success, but its list of models does not show it")
            elif await self._do(action):
                self._last_actions.add(action)
        return bool(self._last_actions)

    async def _observe(self) -> None:
        self._complete, self._partial = await asyncio.to_thread(self._store.scan)
        versions = {Version(adapter.name, adapter.digest) for adapter in self.desired} | self._complete.keys()
        self._faults = {key: fault for key, fault in self._faults.items() if key[1] in versions}
        try:
            self._loaded = self._ours(await self._engine.models())
        except EngineDownError:
            self._loaded = None
            self._forget_refusals()
        except EngineUnavailableError as error:
            log.debug("%s", error)  # a busy engine keeps its adapters
            return
        loaded = sorted({*self._memory.loaded, *(self._loaded or {})} & {adapter.name for adapter in self.desired})
        if tuple(loaded) != self._memory.loaded:
            self._remember(msgspec.structs.replace(self._memory, loaded=tuple(loaded)))

    def _ours(self, models: dict[str, str]) -> dict[str, str]:
        """Return the digest of each adapter that the engine loaded from the directory of a version or, for a version in
        the engine's container, from the path in its URL. The keys are adapter names. If the engine does not report the
        path of an adapter, the adapter counts only if exactly one version of it is complete."""
        digests = {}
        places = {(one.name, self._store.place(one, url)): one for one, url in self._complete.items()}
        for name, path in models.items():
            version = places.get((name, path)) or self._store.version(path)
            if version and version.name == name:
                digests[name] = version.digest
            elif not path and len(versions := [other for other in self._complete if other.name == name]) == 1:
                digests[name] = versions[0].digest
        return digests

    def _forget_refusals(self) -> None:
        """Forget all failures except those of downloads, because a restarted engine may accept what it rejected
        before."""
        self._faults = {key: fault for key, fault in self._faults.items() if key[0] is Fetch}

    def _stop_outdated(self) -> None:
        versions = {Version(adapter.name, adapter.digest) for adapter in self.desired}
        for version, running in self._fetches.items():
            if version not in versions:
                running.stop.set()

    # --- the actions -------------------------------------------------------------------------------------------------

    async def _do(self, action: Action) -> bool:
        try:
            match action:
                case Fetch(adapter):
                    self._begin(adapter)
                    return False  # its end wakes the loop
                case Load(version, swap):
                    place = self._store.place(version, self._complete[version])
                    await self._engine.load(version.name, place, swap=swap)
                    log.info("Loaded %s from %s", version.name, version.digest)
                case Unload(version):
                    await self._engine.unload(version.name)
                    log.info("Unloaded %s", version.name)
                case Remove(version):
                    await asyncio.to_thread(self._store.remove, version)
        except (EngineDownError, EngineUnavailableError):
            return False  # the next step observes the outcome
        except (EngineRefusedError, LoadError) as error:
            self._failed(action, str(error))
            return False
        self._faults.pop((type(action), action.version), None)
        return True

    def _begin(self, adapter: Adapter) -> None:
        version = Version(adapter.name, adapter.digest)
        if len(self._fetches) >= FETCHES:
            return
        stop, meter = threading.Event(), Meter()
        task = asyncio.create_task(self._bring(adapter, version, stop, meter))
        self._fetches[version] = Running(task, stop, meter)

    async def _bring(self, adapter: Adapter, version: Version, stop: threading.Event, meter: Meter) -> None:
        action = Fetch(adapter)
        try:
            await in_thread(partial(self._fetch, adapter.url, version, stop, meter))
            self._faults.pop((Fetch, version), None)
        except LoadError as error:
            self._failed(action, str(error))
        except StoppedError:
            log.info("Fetch of %s cancelled: no longer requested", version.name)
        except Exception as error:
            # Report any failure in the state, and retry it later, not immediately.
            log.exception("Unexpected error while fetching %s", version.name)
            self._failed(action, f"the fetch failed unexpectedly ({type(error).__name__}); see the loader's log")
        finally:
            del self._fetches[version]
            self._wake.set()

    def _failed(self, action: Action, message: str) -> None:
        key = (type(action), action.version)
        count = self._faults[key].count + 1 if key in self._faults else 1
        until = self._clock() + min(5.0 * 2.0 ** (count - 1), LONGEST_PAUSE)
        self._faults[key] = Fault(message, count, until)
        log.warning("%s %s: %s", type(action).__name__, action.version.name, message)

    def _remember(self, memory: Memory) -> None:
        self._memory = memory
        try:
            self._store.remember(memory)
        except OSError as error:
            log.warning("Cannot write to the adapters' folder: %s", error.strerror)
