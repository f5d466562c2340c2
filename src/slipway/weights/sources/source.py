"""A parser for the URLs of weights in a spec, which rejects invalid URLs. Pure.

The pattern in the schema accepts some URLs that identify no weights, or weights that must not be read, so this module
checks the whole URL. The loader's arguments are built from the parsed parts, never from the text itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from slipway.artifacts.locations import huggingface
from slipway.artifacts.locations.address_policy import AddressPolicy
from slipway.artifacts.locations.paths import fault_inside as _fault
from slipway.artifacts.locations.redaction import redact_url
from slipway.serving.contract.settings import Sources
from slipway.spelling import did_you_mean

Kind = Literal["web", "hub", "repository", "bucket", "claim", "host"]
"""Kind of a source: a file at an HTTP URL; files of a Hub repository; a whole Hub repository; files of a bucket; a path
on a claim; a path on the node."""

Fault = Literal["InvalidSource", "SourceNotAllowed", "InvalidFileSet"]
SUFFIX = ".gguf"
UNSAFE_CHARACTERS = re.compile(r"[^A-Za-z0-9._-]+")
SCHEMES = ("http", "https", "hf", "s3", "pvc", "file")
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?:/|$)")
BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{1,254}")
CLAIM = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
FILE = re.compile(r".+\.[A-Za-z][A-Za-z0-9_]{0,15}")
"""Pattern of a last path component that is the name of a file instead of a directory."""
GLOB = re.compile(r"[*?\[]")
ROOM = "the claim, then the path in it: pvc://weights/llama/model.gguf"


class SourceError(ValueError):
    """The text identifies no weights, or weights that must not be read."""

    def __init__(self, reason: Fault, message: str) -> None:
        super().__init__(message)
        self.reason: Fault = reason
        self.message = message


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The text that identifies a source, and the files requested from it."""

    text: str
    name: str = ""
    """Name of the resource, used for files without a usable name."""
    files: tuple[str, ...] = ()
    """Paths or patterns below the URL, main file first; empty: the file that the URL names, or all files."""
    companion: str = ""
    """Path of a further file, such as a projector; empty: there is none."""
    gguf: bool = False
    """Whether the weights are a single GGUF file."""
    hashed: bool = False
    """Whether the spec contains the expected hash of a single file."""
    any_path: bool = False
    """Whether every path on a node is allowed, because no node of the cluster reads it."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A source of weights, as parsed from a spec."""

    kind: Kind
    url: str = ""
    """URL for the loader, such as ``https://...``, ``hf://owner/name@revision`` or ``s3://bucket/folder``; empty: the
    source is a claim or a path on the node."""
    repository: str = ""
    """``owner/name[@revision]`` for engines; empty: the source is not a Hub repository, or its URL names a file in
    it."""
    claim: str = ""
    path: str = ""
    """Path relative to the claim, or absolute path on the node."""
    files: tuple[str, ...] = ()
    """Paths or patterns below ``url``, main file first; empty: the file that the URL names, or all files of a
    directory."""
    stored_as: str = ""
    """Name of the single file in the cache; empty: files keep their paths."""

    @property
    def main(self) -> str:
        """Path of the main file in the cache directory, for the engine's command line; empty: the path is known only
        after the files are listed, or it is the directory itself."""
        if self.stored_as:
            return self.stored_as
        return self.files[0] if self.files and not GLOB.search(self.files[0]) else ""

    @property
    def cached(self) -> bool:
        """Whether the loader downloads the source into a cache."""
        return self.kind in ("web", "hub", "bucket", "host")


def parse(request: Request, rules: Sources) -> Source:
    """Parse the text of a request as a source. Raise SourceError if it is invalid or not allowed."""
    text = request.text
    if not text.isprintable() or any(character.isspace() or character == "\\" for character in text):
        raise _invalid(f"{redact_url(text)!r} has invalid characters")
    source = _parse(text, request, rules)
    if request.files or request.companion:
        source = _with_files(source, request)
    if request.hashed and not (source.stored_as or source.files or source.kind == "claim"):
        text = "sha256 is for a single file, and this source has several: name one, in files or after the repository"
        raise _invalid(text)
    return source


def _parse(text: str, request: Request, rules: Sources) -> Source:
    if text.startswith("/"):
        return _host(text, request, rules)
    scheme = SCHEME.match(text)
    if scheme is None:
        if "/" not in text:
            raise _invalid(f"{text!r} is not a source: write a URL, a path, or {huggingface.SOME_REPOSITORY}")
        return _hub(text.partition("?")[0].partition("#")[0].split("/"), request)
    rest = text[scheme.end(1) + 1 :]
    if not rest.startswith("//"):
        raise _invalid(f"{redact_url(text)!r} lacks // after the scheme")
    rest = rest[2:]
    match scheme[1].lower():
        case "http" | "https":
            return _web(text, request, rules)
        case "hf":
            return _hub(rest.partition("?")[0].partition("#")[0].rstrip("/").split("/"), request)
        case "s3":
            return _bucket(rest, request)
        case "pvc":
            return _claim(rest, request)
        case "file":
            if not rest.startswith("/"):
                raise _invalid(f"{text!r} contains a host: a path needs a third slash, as in file:///mnt/models/x.gguf")
            return _host(rest, request, rules)
        case other:
            raise _invalid(f"unknown scheme {other}: use {', '.join(SCHEMES)}{did_you_mean(other, SCHEMES)}")


def _web(text: str, request: Request, rules: Sources) -> Source:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise _invalid(f"{redact_url(text)!r} is not a URL") from None
    if not host:
        raise _invalid(f"{redact_url(text)!r} has no host")
    if host.rstrip(".") in huggingface.HOSTS and port in (None, 80, 443):
        try:
            page = huggingface.page_of(parts.path, redact_url(text))
        except ValueError as error:
            raise _invalid(str(error)) from None
        if page is not None:
            return _hub(page, request)
    refused = AddressPolicy(rules.allowed_remote_hosts, rules.blocked_networks).refusal_of_name(host)
    if refused:
        raise SourceError("SourceNotAllowed", f"{refused}: ask the operator to allow it")
    name = unquote(parts.path.rpartition("/")[2])
    if not name:
        raise _invalid(f"{redact_url(text)!r} does not name a file: its path ends with a slash")
    url = urlunsplit((parts.scheme.lower(), parts.netloc, parts.path, parts.query, ""))
    return Source(kind="web", url=url, stored_as=_stored(name, request))


def _hub(words: Sequence[str], request: Request) -> Source:
    try:
        named = huggingface.reference(words, redact_url(request.text))
    except ValueError as error:
        raise _invalid(str(error)) from None
    url = f"hf://{named.pinned}"
    if not named.file:
        return Source(kind="repository", url=url, repository=named.pinned)
    stored = _stored(named.file.rpartition("/")[2], request)
    return Source(kind="hub", url=url, files=(named.file,), stored_as=stored)


def _bucket(rest: str, request: Request) -> Source:
    bucket, _slash, place = rest.partition("/")
    if not BUCKET.fullmatch(bucket):
        raise _invalid(f"{bucket!r} is not the name of a bucket: s3://bucket/key")
    place = place.strip("/")
    if place and _fault(place):
        raise _invalid(f"{place!r} is not a key of {bucket}")
    if request.files or not (request.gguf or FILE.fullmatch(place.rpartition("/")[2])):
        return Source(kind="bucket", url=f"s3://{bucket}/{place}".rstrip("/"))
    if not place:
        raise _invalid(f"s3://{bucket} does not name a file in the bucket")
    return Source(kind="bucket", url=f"s3://{bucket}/{place}", stored_as=_stored(place.rpartition("/")[2], request))


def _claim(rest: str, request: Request) -> Source:
    claim, _slash, path = rest.partition("/")
    path = path.rstrip("/")
    if not CLAIM.fullmatch(claim):
        raise _invalid(f"{claim!r} is not the name of a claim; write {ROOM}")
    if path and _fault(path):
        raise _invalid(f"{path!r} is not a path inside the claim {claim}")
    if not path and request.gguf:
        raise _invalid(f"it does not name a file in the claim {claim}; write {ROOM}")
    return Source(kind="claim", claim=claim, path=path)


def _host(path: str, request: Request, rules: Sources) -> Source:
    place = path.rstrip("/")
    if not place or _fault(place[1:]):
        raise _invalid(f"{path!r} is not the path of a file")
    if not request.any_path and not any(_below(place, root) for root in rules.allowed_host_path_roots):
        text = f"{place} is not in a node directory that the operator allows"
        raise SourceError("SourceNotAllowed", f"{text}: {', '.join(rules.allowed_host_path_roots) or 'none'}")
    last = place.rpartition("/")[2]
    single = request.gguf or FILE.fullmatch(last)
    return Source(kind="host", path=place, stored_as=_stored(last, request) if single else "")


def on_node(path: str, rules: Sources) -> bool:
    """Whether the operator allows a path on the node, because it is one of the allowed directories or below one. False
    for an invalid path."""
    place = path.rstrip("/")
    named = any(root.rstrip("/") == place for root in rules.allowed_host_path_roots)
    return not _fault(place[1:]) and (named or any(_below(place, root) for root in rules.allowed_host_path_roots))


def _below(place: str, root: str) -> bool:
    folder = root.rstrip("/")
    return root.startswith("/") and not _fault(folder[1:] or "x") and place.startswith(f"{folder}/")


def _stored(name: str, request: Request) -> str:
    return file_name(name, request.name) if request.gguf else clean(name) or "model"


def file_name(source_name: str, name: str) -> str:
    """Return the name under which a GGUF file is stored: its name in the source, without characters that shells and
    engines cannot handle. If no characters are left, use the resource's ``name``, or ``model``."""
    stem = source_name[: -len(SUFFIX)] if source_name.lower().endswith(SUFFIX) else source_name
    return (clean(stem) or clean(name) or "model") + SUFFIX


def clean(text: str) -> str:
    """Return the text with only letters, digits, dots, underscores and hyphens. A hyphen replaces each sequence of
    other characters. Dots, underscores and hyphens at both ends are removed, so the result may be empty."""
    return UNSAFE_CHARACTERS.sub("-", text).strip("-._")


def _with_files(source: Source, request: Request) -> Source:
    if source.kind not in ("repository", "bucket"):
        raise _bad_set("files and mmproj need a repository of the hub or a directory in a bucket, not this source")
    if not request.files:
        raise _bad_set("mmproj requires files")
    for file in (*request.files, request.companion):
        if file and (fault := _fault(file)):
            raise _bad_set(f"{file!r} {fault}")
    if GLOB.search(request.companion):
        raise _bad_set(f"mmproj {request.companion!r} must be the path of one file, not a pattern")
    kind: Kind = "hub" if source.kind == "repository" else "bucket"
    files = tuple(dict.fromkeys(file for file in (*request.files, request.companion) if file))
    return msgspec.structs.replace(source, kind=kind, files=files, stored_as="")


def _invalid(message: str) -> SourceError:
    return SourceError("InvalidSource", message)


def _bad_set(message: str) -> SourceError:
    return SourceError("InvalidFileSet", message)
