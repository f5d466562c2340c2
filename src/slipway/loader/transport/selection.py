"""A source that is limited to some of its files, optionally with another name or an expected hash for the main file.

If possible, the main file's SHA-256 is computed during the download, so that the file need not be read again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from fnmatch import fnmatchcase

import msgspec

from slipway.artifacts.documents.report import Fault
from slipway.artifacts.files.copies import PART
from slipway.artifacts.files.file_rules import GGUF
from slipway.artifacts.files.soundness import parts_of
from slipway.loader.transport.digests import Digest, Kind
from slipway.loader.transport.errors import LoadError
from slipway.loader.transport.source import Body, Entry, Listing, Retry, Source
from slipway.spelling import did_you_mean

LONGEST_ETAG = 200
"""Maximum length of a reported ETag in characters. ETags of servers are shorter."""


class FaultError(LoadError):
    """A permanent failure of a load. The message begins with a code for programs, such as ``SourceNotFound``."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(f"{fault}: {message}")


class FileRequest(msgspec.Struct, frozen=True):
    """The files to load from a source."""

    files: tuple[str, ...] = ()
    """Paths or patterns of the files, main file first; empty: all files."""
    stored_as: str = ""
    """Name under which to store the only file. The parts of a split file get this name with their numbers. Empty: files
    keep their paths."""
    sha256: str = ""
    """Expected SHA-256 of the main file in lower-case hex; empty: any hash is accepted."""

    def of(self, entries: Sequence[Entry]) -> tuple[Entry, ...]:
        """Return the selected entries with their final paths, main file first. Without ``files``, all entries are
        selected, sorted by path. Raise FaultError if a selected file is missing, if the main file is not the first part
        of a split GGUF file, or if ``stored_as`` is set for several files that are not the parts of one file."""
        chosen: dict[str, Entry] = {}
        for pattern in self.files or ("**",):
            fitting = sorted((entry for entry in entries if matches(entry.path, pattern)), key=lambda entry: entry.path)
            if not fitting:
                text = f"the source has no file {pattern!r}; it has {_some(entries)}"
                raise FaultError("SourceNotFound", text + did_you_mean(pattern, (entry.path for entry in entries)))
            for entry in fitting:
                chosen.setdefault(entry.path, entry)
        selection = with_parts(tuple(chosen.values()), entries)
        if self.files or self.stored_as:
            check_first(self.stored_as or selection[0].path)
        if not self.stored_as:
            return selection
        parts = parts_of(selection[0].path)
        if len(selection) == 1 and not parts:
            return (msgspec.structs.replace(selection[0], path=self.stored_as),)
        if not {entry.path for entry in selection} <= set(parts):
            raise FaultError("InvalidFileSet", f"the source has {len(selection)} files, but exactly one is expected")
        return tuple(msgspec.structs.replace(one, path=part_name(self.stored_as, one.path)) for one in selection)


def with_parts(selection: Sequence[Entry], entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the selection with the other parts of split files in ``entries``, because no engine can read a single
    part."""
    there = {entry.path: entry for entry in entries}
    complete = dict.fromkeys(entry.path for entry in selection)
    for entry in selection:
        complete |= dict.fromkeys(part for part in parts_of(entry.path) if part in there)
    return tuple(there[path] for path in complete)


def check_first(main: str) -> None:
    """Raise FaultError if the main file is a part of a split GGUF file but not the first one, because engines need the
    first part."""
    parts = parts_of(main)
    if parts and main != parts[0] and main.lower().endswith(GGUF):
        raise FaultError("InvalidFileSet", f"{main} is one of {len(parts)} parts: name the first one, {parts[0]}")


def part_name(stored_as: str, path: str) -> str:
    """Return the name under which to store the part ``path`` if the whole file is stored as ``stored_as``."""
    part = PART.search(path)
    stem, dot, ending = PART.sub("", stored_as).rpartition(".")
    return f"{stem}{part[0] if part else ''}{dot}{ending}"


class Selection:
    """A source limited to the selected files."""

    def __init__(self, source: Source, chosen: FileRequest) -> None:
        self._source, self._chosen = source, chosen
        self._promised = self._whole = ""
        self.selected = Listing("", ())
        """Result of the latest ``listing``."""
        self.main = ""
        """Path of the main file, known after ``listing``; empty: there is none, because all files of a source with
        several files are selected."""

    @property
    def sha256(self) -> str:
        """SHA-256 of the main file, declared by the source or computed while it was read; empty: it is not declared,
        and the file was not read from beginning to end."""
        return self._promised or self._whole

    @property
    def came(self) -> str:
        """SHA-256 of the main file's bytes as received; empty: the source declares the hash, or the file was not read
        from beginning to end."""
        return self._whole

    def listing(self, retry: Retry) -> Listing:
        """List the selected files. Raise FaultError if one is missing, or if the source declares another hash for the
        main file than expected."""
        whole = self._source.listing(retry)
        entries = self._chosen.of(whole.entries)
        if self._chosen.files or self._chosen.stored_as or len(entries) == 1:
            entries = (self._expected(entries[0]), *entries[1:])
            self.main = entries[0].path
        self.selected = Listing(whole.revision, entries)
        return self.selected

    def read(self, entry: Entry, start: int) -> AbstractContextManager[Body]:
        """Open a file at offset ``start``. The main file is hashed while it is read, unless the source declares its
        hash."""
        if entry.path != self.main or self._promised:
            return self._source.read(entry, start)
        return self._watched(entry, start)

    @contextmanager
    def _watched(self, entry: Entry, start: int) -> Iterator[Body]:
        with self._source.read(entry, start) as body:
            watched = _Watched(body)
            yield watched
            self._whole = watched.sha256

    def _expected(self, entry: Entry) -> Entry:
        """Return the main file's entry with its expected hash. Raise FaultError if the source declares another hash."""
        promised = entry.digest.value if entry.digest and entry.digest.kind is Kind.SHA256 else ""
        expected = self._chosen.sha256
        if promised and expected and promised != expected:
            text = f"the source says that {entry.path} has the SHA-256 {promised}, not {expected}"
            raise FaultError("IntegrityCheckFailed", text)
        self._promised = promised
        return msgspec.structs.replace(entry, digest=Digest(Kind.SHA256, expected)) if expected else entry


class _Watched:
    """A body that is hashed while it is read, if it starts at the beginning of the file."""

    def __init__(self, body: Body) -> None:
        self.start, self.verifiable = body.start, body.verifiable
        self.sha256 = ""
        self._body = body
        self._hash = hashlib.sha256() if body.start == 0 else None

    def read(self, size: int) -> bytes:
        """Return the next bytes of the body, at most ``size``, and hash them. An empty result means that the body has
        ended."""
        data = self._body.read(size)
        if self._hash is not None:
            self._hash.update(data)
            if not data:
                self.sha256 = self._hash.hexdigest()
        return data


def matches(path: str, pattern: str) -> bool:
    """Whether a path matches a pattern. ``*`` does not match slashes, and the pattern ``**`` matches every path. A path
    matches itself, even if it contains brackets."""
    if pattern in ("**", path):
        return True
    parts, pattern_parts = path.split("/"), pattern.split("/")
    return len(parts) == len(pattern_parts) and all(map(fnmatchcase, parts, pattern_parts))


def etag(entries: Iterable[Entry]) -> str:
    """Return a text that identifies the content of these files, or an empty string if there are no files or the source
    declares neither a version nor a digest for one of them."""
    versions = [(entry.path, entry.version or (entry.digest.value if entry.digest else "")) for entry in entries]
    if not versions or not all(version for _path, version in versions):
        return ""
    if len(versions) == 1:
        return versions[0][1][:LONGEST_ETAG]
    return hashlib.sha256("\n".join(f"{path}\0{version}" for path, version in sorted(versions)).encode()).hexdigest()


def _some(entries: Sequence[Entry]) -> str:
    names = sorted(entry.path for entry in entries)
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more if names else "none at all"
