"""The load of a source into a directory, in four steps: list the files, check the free space, download with several
threads, and mark the directory as complete."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path

from slipway.artifacts.locations.redaction import redact_url
from slipway.loader.disk.folder import Folder, Owner, checked, disk_error
from slipway.loader.disk.progress import Meter, human
from slipway.loader.download.transfer import Policy, Retrier, Transfer
from slipway.loader.download.verification import check_files, check_names
from slipway.loader.transport.errors import LoadError, StoppedError
from slipway.loader.transport.source import Listing, Retry, Source

log = logging.getLogger(__name__)


def load(
    url: str,
    open_source: Callable[[], Source],
    path: Path,
    policy: Policy,
    stop: threading.Event,
    meter: Meter,
    outdated: Collection[str] | None = None,
    owner: Owner | None = None,
) -> bool:
    """Load the source ``url`` into the directory ``path``, and return True. Return False, without sending a request, if
    the directory already contains the source.

    If ``outdated`` is not None, the directory has an older state of the source, and the files in ``outdated`` are
    downloaded again. Each old file stays until its replacement is complete. For ``owner``, see ``Folder``.
    ``open_source`` is not called if the result is False. Raise LoadError, or StoppedError after ``stop`` is set.
    """
    try:
        return _load(url, open_source, path, owner, policy, stop, meter, outdated)
    except OSError as error:
        raise disk_error(error, path) from error


def _load(
    url: str,
    open_source: Callable[[], Source],
    path: Path,
    owner: Owner | None,
    policy: Policy,
    stop: threading.Event,
    meter: Meter,
    outdated: Collection[str] | None,
) -> bool:
    name, folder = redact_url(url), Folder(path, owner)
    if outdated is None and folder.holds(name):
        return False
    with folder.opened(stop, meter.note):
        if outdated is None and folder.holds(name):  # loaded by the loader that held the lock
            return False
        source = open_source()
        listing = _listing(source, name, partial(Retrier(policy, stop, meter).call, name))
        entries = checked(listing.entries)
        check_names([entry.path for entry in entries])
        meter.expect(listing.size, len(entries))
        log.info("%s has %d files, %s", name, len(entries), human(listing.size))
        folder.begin(entries)
        replaced = folder.doubtful(entries).union(outdated or ())
        existing = [entry for entry in entries if entry.path not in replaced]
        folder.room(entries, existing)
        transfers = {
            entry.path: Transfer(source, folder, entry, policy, stop, meter, replaces=entry not in existing)
            for entry in entries
        }
        in_parallel((transfer.run for transfer in transfers.values()), policy.parallel, stop)
        check_files(path, transfers)
        folder.finish(name, listing.revision, {path: transfer.size for path, transfer in transfers.items()})
    return True


def _listing(source: Source, name: str, retry: Retry) -> Listing:
    try:
        return source.listing(retry)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise LoadError(f"{name}: the list of files is not in the expected format: check the endpoint") from error


def in_parallel(tasks: Iterable[Callable[[], None]], workers: int, stop: threading.Event) -> None:
    """Run all tasks, at most ``workers`` at a time. When a task fails, set ``stop`` so that the others end, and raise
    the exception. Raise StoppedError if another thread has set ``stop``.

    The threads are daemons, so the process can end while one of them hangs on a silent server.
    """
    waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    for task in tasks:
        waiting.put(task)
    failures: list[BaseException] = []

    def work() -> None:
        while not stop.is_set():
            try:
                waiting.get_nowait()()
            except queue.Empty:
                return
            except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
                failures.append(error)
                stop.set()

    threads = [threading.Thread(target=work, daemon=True) for _unused in range(min(workers, waiting.qsize()))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in failures:
        if not isinstance(failure, StoppedError):
            raise failure
    if stop.is_set():
        raise StoppedError
