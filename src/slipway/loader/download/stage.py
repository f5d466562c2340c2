"""The loader's reports: on weights after a download (``stage``), on existing files (``inspect``), and on a source
without a download (``probe``).

A report contains the hash and the header of the weights, and the state of their source.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from slipway.artifacts.documents.report import Report, encode_report
from slipway.artifacts.documents.report import parse_report as read_report
from slipway.artifacts.headers import gguf
from slipway.artifacts.headers.range_reader import MalformedFileError, UnreadableError
from slipway.artifacts.locations.address_policy import AddressPolicy
from slipway.artifacts.locations.redaction import redact_url
from slipway.loader.disk.folder import MARKER, NOTES, Folder, Owner, checked
from slipway.loader.disk.progress import Meter
from slipway.loader.disk.reuse import link_existing
from slipway.loader.download.headers import with_headers
from slipway.loader.download.load import load
from slipway.loader.download.transfer import Policy, Retrier
from slipway.loader.download.verification import fault_in
from slipway.loader.sources import local
from slipway.loader.transport.errors import LoadError, StoppedError
from slipway.loader.transport.selection import FaultError, FileRequest, Selection, etag
from slipway.loader.transport.source import CHUNK, Access, Entry, Retry, Source, open_source

MOST_FAULT = 300
"""Maximum length of a fault in a report, in characters."""
FARTHEST = 32 << 20
"""Maximum number of bytes to read and discard before a range, if the server does not support ranges."""
T = TypeVar("T")
TRIES = 2
"""Number of downloads of a file whose hash is known. The first download may resume an earlier load that left wrong
bytes."""


class Work(msgspec.Struct, frozen=True):
    """The settings and shared objects of one run of a command: its retry policy, the stop event and the progress."""

    policy: Policy
    stop: threading.Event
    meter: Meter
    header: str = ""
    """Headers to read: ``gguf``, ``safetensors``, or ``model`` for any file that describes the model; empty: read no
    headers."""

    def retry(self, url: str) -> Retry:
        """Return a function that repeats a call that raises TransientError, as in ``Retrier.call``. Its messages
        contain ``url`` without secrets."""
        return partial(Retrier(self.policy, self.stop, self.meter).call, redact_url(url))


def opened(
    url: str, env: Mapping[str, str], address_policy: AddressPolicy | None, *, node_identity: bool = False
) -> Source:
    """Return the source of ``url``, which may also be a local file or directory. ``address_policy`` and
    ``node_identity`` are as in ``Access``. Raise LoadError."""
    if url.startswith(local.SCHEME):
        return local.open_source(url, env)
    return open_source(url, env, Access(address_policy, node_identity))


def stage(
    url: str,
    source: Callable[[], Source],
    folder: Path,
    chosen: FileRequest,
    work: Work,
    *,
    refresh: bool = False,
    reuse: Path | None = None,
    owner: Owner | None = None,
) -> Report:
    """Load the selected files of ``url`` into ``folder``, and return a report on them. Raise LoadError, also if the
    main file does not have the expected hash, or StoppedError after ``work.stop`` is set.

    With ``refresh``, the existing files may be from an older state of the source. ``reuse`` is a directory that may
    already have the same files. If ``owner`` is set, only this owner's earlier loads are trusted, and the report
    contains the new seal of the directory.
    """
    selection = Selection(source(), chosen)
    if reuse is not None and not Folder(folder, owner).holds(redact_url(url)):
        link_existing(url, selection.listing(work.retry(url)), folder, reuse)
    outdated = _find_outdated(folder, selection, work.retry(url)) if refresh else None
    load_it = partial(_load, url, selection, folder, chosen, work, owner=owner)
    fresh = load_it(outdated)
    report = None if fresh else _read_note(folder)
    if report is None:
        # If a loader was interrupted before its report, its source may have changed since.
        if not fresh and not _is_of(folder, selection.listing(work.retry(url)).entries):
            outdated = _find_outdated(folder, selection, work.retry(url))
            fresh = load_it(outdated)
        report = _build_report(selection, folder, work)
        _write_note(folder, report)
    if chosen.sha256 and report.sha256 != chosen.sha256:
        if fresh:
            _remove(folder, report.file)
        raise _wrong(report.file, report.sha256, chosen.sha256)
    return report if owner is None else msgspec.structs.replace(report, seal=Folder(folder, owner).seal())


def _load(
    url: str,
    selection: Selection,
    folder: Path,
    chosen: FileRequest,
    work: Work,
    outdated: frozenset[str] | None,
    *,
    owner: Owner | None,
) -> bool:
    """Load the selected files. Return False if the directory already contained them. Raise LoadError or
    StoppedError."""
    policy = msgspec.structs.replace(work.policy, wrong=TRIES) if chosen.sha256 else work.policy
    try:
        return load(url, lambda: selection, folder, policy, work.stop, work.meter, outdated, owner)
    except LoadError as error:
        raise _explain(error, selection, chosen) from error


def inspect(path: Path, sha256: str, work: Work) -> Report:
    """Return a report on the existing file or directory ``path``. If ``sha256`` is not empty, compare it with the hash
    of the only file. Raise LoadError if ``path`` cannot be read, the hash differs, or a hash is given for several
    files. The report contains any other problem with the files."""
    selection = Selection(local.LocalFiles(path), FileRequest() if path.is_dir() else FileRequest((path.name,)))
    entries = checked(selection.listing(work.retry(str(path))).entries)
    if sha256 and not selection.main:
        raise FaultError("InvalidFileSet", f"{path} has {len(entries)} files, but a hash is for one")
    top = path if path.is_dir() else path.parent
    actual = digest(top / selection.main, work.stop) if sha256 else ""
    if actual != sha256:
        raise _wrong(selection.main, actual, sha256)
    fault = _fault_in(top, entries)
    return msgspec.structs.replace(_describe(top, selection, work), sha256=actual, fault=fault)


def _fault_in(folder: Path, entries: Sequence[Entry]) -> str:
    """Return the problem with the files of a directory, at most ``MOST_FAULT`` characters, or an empty string if there
    is none. Unreadable files are not a problem, because the engine may have more permissions."""
    try:
        return fault_in(folder, [entry.path for entry in entries])[:MOST_FAULT]
    except OSError:
        return ""


def probe(url: str, source: Source, chosen: FileRequest, work: Work) -> Report:
    """Return a report on the current state of a source, without downloading its files. If ``work.header`` is ``gguf``
    and there is a main file, also read the header of that file. Raise LoadError or StoppedError."""
    selection = Selection(source, chosen)
    retry = work.retry(url)
    listing = selection.listing(retry)
    report = Report(
        file=selection.main,
        files=len(listing.entries),
        size=listing.size,
        etag=etag(listing.entries),
        revision=listing.revision,
    )
    if work.header != "gguf" or not selection.main:
        return report
    try:
        header = retry(lambda: gguf.parse(partial(piece, source, listing.entries[0])))
    except MalformedFileError as error:
        return msgspec.structs.replace(report, header_fault=str(error)[:300])
    return msgspec.structs.replace(report, gguf=header)


def piece(source: Source, entry: Entry, offset: int, size: int) -> bytes:
    """Return ``size`` bytes of a remote file from ``offset`` on, or fewer at the end. If the server does not support
    ranges, read and discard the bytes before ``offset``. Raise UnreadableError if these are more than ``FARTHEST``, or
    LoadError or TransientError."""
    with source.read(entry, offset) as body:
        before = offset - body.start
        if before > FARTHEST:
            raise UnreadableError("its server does not support ranges, and its header is long")
        buffer = bytearray()
        while len(buffer) < before + size and (data := body.read(min(CHUNK, before + size - len(buffer)))):
            buffer += data
        return bytes(buffer[before:])


def digest(path: Path, stop: threading.Event) -> str:
    """Return the SHA-256 of a file in hex. Raise LoadError, or StoppedError after ``stop`` is set."""
    checksum = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as stream:
            while chunk := stream.read(CHUNK):
                if stop.is_set():
                    raise StoppedError
                checksum.update(chunk)
    except OSError as error:
        raise local.unreadable(path, error) from error
    return checksum.hexdigest()


def _build_report(selection: Selection, folder: Path, work: Work) -> Report:
    report = _describe(folder, selection, work)
    sha256 = selection.sha256
    if selection.main and not sha256:
        sha256 = digest(folder / selection.main, work.stop)
    return msgspec.structs.replace(report, sha256=sha256)


def _describe(folder: Path, selection: Selection, work: Work) -> Report:
    """Return a report on the selected files in ``folder``, without the hash."""
    entries = selection.selected.entries
    names = [entry.path for entry in entries]
    report = Report(
        file=selection.main,
        files=len(names),
        size=sum((folder / name).stat().st_size for name in names),
        etag=etag(entries),
        revision=selection.selected.revision,
    )
    return with_headers(report, folder, names, work.header)


def _explain(error: LoadError, selection: Selection, chosen: FileRequest) -> LoadError:
    """Return an integrity error if the main file arrived completely but with another hash than expected. Return
    ``error`` if it is transient, no hash is expected, or the main file's bytes were not hashed."""
    if error.transient or not chosen.sha256 or selection.came in ("", chosen.sha256):
        return error
    return _wrong(selection.main, selection.came, chosen.sha256)


def _wrong(file: str, actual: str, expected: str) -> FaultError:
    return FaultError("IntegrityCheckFailed", f"{file} has the SHA-256 {actual or '(unknown)'}, not {expected}")


def _find_outdated(folder: Path, selection: Selection, retry: Retry) -> frozenset[str] | None:
    """Return the paths of the files without a digest, which must be downloaded again because they cannot be compared
    with the source, and remove the stored report. Return None, and remove nothing, if the source has not changed since
    the last load.

    Do not remove the files, because pods read them, and more pods may start before the new files are complete.
    """
    report = _read_note(folder)
    entries = selection.listing(retry).entries
    if report is not None and report.etag and report.etag == etag(entries):
        return None
    with suppress(FileNotFoundError, NotADirectoryError):
        (folder / NOTES).unlink()
    return frozenset(entry.path for entry in entries if entry.digest is None)


def _is_of(folder: Path, entries: Sequence[Entry]) -> bool:
    """Whether the directory has all files of ``entries``, judging by their names and known sizes."""
    try:
        return all(entry.size in (None, (folder / entry.path).stat().st_size) for entry in entries)
    except OSError:
        return False


def _remove(folder: Path, file: str) -> None:
    for name in (MARKER, NOTES, file):
        if name:
            (folder / name).unlink(missing_ok=True)


def _read_note(folder: Path) -> Report | None:
    try:
        return read_report((folder / NOTES).read_text("utf-8", "replace"))
    except OSError:
        return None


def _write_note(folder: Path, report: Report) -> None:
    """Store the report in the directory atomically. Ignore errors, because without the report, a later load only has to
    verify the files again."""
    fresh = folder / f"{NOTES}.{secrets.token_hex(8)}"
    with suppress(OSError):
        try:
            fresh.write_bytes(encode_report(report))
            fresh.replace(folder / NOTES)
        finally:
            fresh.unlink(missing_ok=True)
