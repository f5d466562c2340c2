"""The metadata of a model, read from parts of the source's files before any file is downloaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from slipway.artifacts.documents.model_facts import ModelMetadata, derive_facts
from slipway.artifacts.documents.publication import Facts
from slipway.artifacts.facts import config
from slipway.artifacts.files import soundness
from slipway.artifacts.files.file_rules import CONFIG, INDEX, FileChoice, UnsupportedError, choose
from slipway.artifacts.headers import gguf, safetensors
from slipway.artifacts.headers.gguf import Gguf
from slipway.artifacts.headers.range_reader import MalformedFileError, Read, UnreadableError
from slipway.decoding import DecodingError, decode_json
from slipway.loader.download.headers import MOST_HEADERS, model_files
from slipway.loader.download.stage import piece
from slipway.loader.transport.digests import hasher
from slipway.loader.transport.selection import FaultError
from slipway.loader.transport.source import Entry, Listing, Retry, Source

TOKENIZER, TEMPLATE = "tokenizer_config.json", "chat_template.jinja"
MOST_INDEX = 16 << 20
MOST_TEMPLATE = 16 << 20
"""Maximum size in bytes of a tokenizer's configuration, which contains the chat template."""
T = TypeVar("T")


class Description(msgspec.Struct, frozen=True):
    facts: Facts
    precisions: tuple[str, ...]
    """The data type that most parameters of the safetensors files have, as the only element; empty: it is unknown."""


def chosen_of(source: Source, listing: Listing, retry: Retry) -> FileChoice:
    """Return the files of the source that make up the model. Raise LoadError if there is no model, or if a part of the
    model is missing."""
    files, paths = _Files(source, listing.entries, retry), {entry.path for entry in listing.entries}
    indexes = {path: files.json(path, MOST_INDEX) for path in paths if path.lower().endswith(soundness.INDEX)}
    for path in [path for path, content in indexes.items() if soundness.belongs_to_other_model(path, content, paths)]:
        paths.remove(path)
        del indexes[path]
    indexed = {one for path, content in indexes.items() for one in soundness.named_by(path, content)}
    try:
        sizes = {entry.path: entry.size for entry in listing.entries}
        chosen = choose(paths, sizes=sizes, indexed=indexed)
    except UnsupportedError as error:
        raise FaultError("UnsupportedSource", str(error)) from error
    for path, content in indexes.items():
        if path in chosen.files and (missing := soundness.missing_of_index(path, content, paths)):
            raise FaultError("UnsupportedSource", soundness.incomplete(missing, path))
    if missing := soundness.missing_part(chosen.weights):
        raise FaultError("UnsupportedSource", soundness.incomplete(missing))
    return chosen


def describe_model(source: Source, listing: Listing, chosen: FileChoice, retry: Retry) -> Description:
    """Return the facts about a model from its configuration and headers. Values that cannot be read are left out. Raise
    LoadError if the source fails, or if the content of a file does not match its name."""
    files = _Files(source, listing.entries, retry)
    files.check(chosen.companions, soundness.json_of(chosen.weights))
    main = {"Diffusers": INDEX, "Safetensors": CONFIG}.get(chosen.format, "")
    tensors: Mapping[str, int] = {}
    shapes: dict[str, tuple[str, Sequence[int]]] = {}
    headers: tuple[tuple[Gguf, ...], ...] = ()
    if chosen.format == "GGUF":
        models = _models(chosen.weights)
        headers = tuple(files.gguf(parts) for parts in models)
        files.gguf(sorted(chosen.weights.difference(*models)))
    else:
        tensors = files.tensors(chosen, main, shapes)
    beside = {name: files.json(name, config.MOST_BYTES) for name in config.QUANTIZATION_FILES if main == CONFIG}
    metadata = ModelMetadata(
        format=chosen.format,
        tasks=listing.tasks,
        features=listing.features,
        configuration=config.completed(files.json(main, config.MOST_BYTES), beside) if main else {},
        files=tuple(sorted(chosen.files)),
        tensors=tensors,
        shapes=shapes if tensors else {},
        headers=headers,
        template=files.template(),
    )
    most = sorted(tensors, key=lambda name: (-tensors[name], name))
    return Description(derive_facts(metadata), tuple(most[:1]))


class _Files:
    def __init__(self, source: Source, entries: Sequence[Entry], retry: Retry) -> None:
        self._source, self._retry = source, retry
        self._entries = {entry.path: entry for entry in entries}

    def json(self, path: str, most: int) -> Mapping[str, Any]:
        """Return the JSON object in a file. Return an empty one if the file is missing, invalid or larger than ``most``
        bytes, or if the source does not report the size."""
        text = self._text(path, most)
        try:
            if path in (CONFIG, INDEX):
                return config.parse_config(text)
            return decode_json(text, dict[str, Any], most=most)
        except DecodingError:
            return {}

    def template(self) -> str:
        """Return the chat template, from its own file or from the tokenizer's configuration. Return an empty string if
        there is none."""
        own = self._text(TEMPLATE, config.MOST_BYTES).decode("utf-8", "replace")
        template = own or self.json(TOKENIZER, MOST_TEMPLATE).get("chat_template")
        if isinstance(template, list):
            template = " ".join(str(one.get("template", "")) for one in template if isinstance(one, dict))
        return template if isinstance(template, str) else ""

    def tensors(self, chosen: FileChoice, main: str, shapes: dict[str, tuple[str, Sequence[int]]]) -> Mapping[str, int]:
        """Return the number of parameters in the model's safetensors files, by data type. Return an empty mapping if a
        header exceeds a limit, if there are more than ``MOST_HEADERS`` files, or if some weights are in another format.
        ``shapes`` is filled as in ``safetensors.parse``. Raise LoadError for an invalid file."""
        parse = partial(safetensors.parse, budget=safetensors.Budget(), shapes=shapes)
        total: Counter[str] = Counter()
        names = [name for name in chosen.weights if name.lower().endswith(".safetensors")]
        self.check(chosen.weights.difference(names))
        if len(names) > MOST_HEADERS:
            return {}
        model, complete = set(model_files(sorted(names), main)), len(names) == len(chosen.weights)
        for name in self._in_order(names):
            header = self._header(name, parse if name in model else safetensors.parse)
            complete = complete and header is not None
            if header is not None:
                self._check_size(name, header.size)
                total.update(header.parameters if name in model else {})
        return dict(sorted(total.items())) if complete else {}

    def gguf(self, parts: Sequence[str]) -> tuple[Gguf, ...]:
        """Return the header of each part of a model, at most ``MOST_HEADERS``, or an empty tuple if one of them exceeds
        a limit. Raise LoadError for an invalid header."""
        headers = [self._header(name, self._gguf_parser(name)) for name in parts[:MOST_HEADERS]]
        return tuple(one for one in headers if one is not None) if all(headers) else ()

    def check(self, names: Collection[str], read_as_json: Collection[str] = ()) -> None:
        """Raise LoadError if the content of a file is obviously not what its name suggests. ``read_as_json`` contains
        the files that an engine parses as JSON. Large files with an extension that no engine reads are skipped, and
        also files after the first ``MOST_HEADERS``."""
        read = [name for name in self._in_order(names) if name.lower().endswith(soundness.READ) or self._is_tiny(name)]
        for name in read[:MOST_HEADERS]:
            self._refuse(name, "", as_json=name in read_as_json)

    def _is_tiny(self, name: str) -> bool:
        return (self._entries[name].size or 0) <= soundness.POINTER_BYTES

    def _refuse(self, name: str, reason: str, *, as_json: bool = False) -> None:
        """Raise FaultError for the problem that the bytes of a file show, or else for ``reason``. Return if there is no
        problem and ``reason`` is empty."""
        entry = self._entries[name]
        head = b"" if entry.size == 0 else self._retry(partial(piece, self._source, entry, 0, soundness.HEAD))
        fault = soundness.fault_of(name, head, entry.size, as_json=as_json) or reason
        if not fault and as_json:
            fault = soundness.fault_of_json(name, head, self._tail(entry, head))
        if fault:
            raise FaultError("UnsupportedSource", fault[:600])

    def _tail(self, entry: Entry, head: bytes) -> bytes:
        """Return the last bytes of a file, or all bytes of a short one, whose content is ``head``. Return no bytes if
        the source does not report the size or does not support ranges."""
        if len(head) < soundness.HEAD or entry.size == len(head):
            return head
        if not entry.size:
            return b""
        place = entry.size - soundness.TAIL
        try:
            return self._retry(partial(piece, self._source, entry, place, soundness.TAIL))
        except UnreadableError:
            return b""

    def _check_size(self, name: str, promised: int) -> None:
        size = self._entries[name].size
        if size is not None and size != promised:
            raise FaultError("UnsupportedSource", soundness.cut_off(name, size, promised))

    def _gguf_parser(self, name: str) -> Callable[[Read], Gguf]:
        return partial(gguf.parse, count=True, size=self._entries[name].size or 0)

    def _in_order(self, names: Collection[str]) -> list[str]:
        """Return ``names`` in the order of the source, because some sources can be read only from beginning to end."""
        paths = set(names)
        return [path for path in self._entries if path in paths]

    def _header(self, name: str, parse: Callable[[Read], T]) -> T | None:
        try:
            return self._retry(lambda: parse(partial(piece, self._source, self._entries[name])))
        except UnreadableError:
            return None
        except (MalformedFileError, DecodingError) as error:
            self._refuse(name, soundness.unreadable(name, error))
            return None

    def _text(self, path: str, most: int) -> bytes:
        entry = self._entries.get(path)
        if entry is None or not entry.size or entry.size > most:
            return b""
        content = bytearray()
        while len(content) < entry.size:
            more = self._retry(partial(piece, self._source, entry, len(content), entry.size - len(content)))
            if not more:
                break
            content += more
        promised = hasher(entry.digest, entry.size)
        promised.update(bytes(content))
        return bytes(content) if entry.digest is None or promised.hexdigest() == entry.digest.value else b""


def _models(names: frozenset[str]) -> list[list[str]]:
    """Return the GGUF files of each model, sorted by name. Projectors, which only process images or audio, are left
    out."""
    models: dict[str, list[str]] = {}
    for name in sorted(names):
        if not name.rpartition("/")[2].startswith(config.PROJECTOR):
            models.setdefault(gguf.whole(name), []).append(name)
    return list(models.values())
