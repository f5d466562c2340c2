"""Sources: what ``spec.source`` of a Model means, and which ones are refused and why. Pure.

The schema's pattern lets many a text pass that names nothing, or something that must not be read; so everything is
looked at here again. What a loader is told is made of the parts that were found, never of the text itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

import msgspec

from slipway.apis.llmkube import names
from slipway.apis.llmkube.model_types import ModelSpec
from slipway.artifacts.addresses import public
from slipway.artifacts.guard import Guard
from slipway.artifacts.huggingface import REPOSITORY
from slipway.kube.objects import Object
from slipway.serving.plan import Invalid
from slipway.serving.settings import Sources

Kind = Literal["web", "hub", "repository", "bucket", "claim", "host"]
"""One file at an address; files of a hub's repository; a whole repository, which the engine fetches itself; files of a
bucket; a path of a claim; a path of the node."""

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?:/|$)")
HUB_HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")
NOT_MODELS = ("datasets", "spaces", "api", "docs", "models", "blog", "papers", "collections", "settings", "join")
"""First parts of the hub's addresses that are no owner's name."""
FILE_PAGES = ("resolve", "blob", "raw")
REVISION = re.compile(r"[A-Za-z0-9][\w./-]{0,254}")
BUCKET = re.compile(r"[A-Za-z0-9][\w.-]{1,254}")
CLAIM = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
FILE = re.compile(r".+\.[A-Za-z][A-Za-z0-9_]{0,15}")
"""A last part of a path that is a file's name rather than a folder's."""
GLOB = re.compile(r"[*?\[]")
ROOM = "the claim, then the path in it: pvc://weights/llama/model.gguf"
SOME_REPOSITORY = "a repository such as Qwen/Qwen2.5-0.5B-Instruct-GGUF"


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A source in parts."""

    kind: Kind
    url: str = ""
    """What the loader fetches from: ``https://...``, ``hf://owner/name@revision``, ``s3://bucket/folder``."""
    repository: str = ""
    """``owner/name[@revision]``, as engines take it."""
    claim: str = ""
    path: str = ""
    """Inside the claim, relative; or of the node, absolute."""
    files: tuple[str, ...] = ()
    """Paths or patterns below ``url``, the main one first. Empty: the one file that it names, or all of a folder."""
    stored_as: str = ""
    """Name in the cache of a single file; empty: the files keep their paths."""

    @property
    def main(self) -> str:
        """The file that the engine is told, inside the cache's folder. Empty: that is seen when the files are listed,
        or it is the folder itself."""
        if self.stored_as:
            return self.stored_as
        return self.files[0] if self.files and not GLOB.search(self.files[0]) else ""

    @property
    def cached(self) -> bool:
        """Whether a loader brings it into a cache."""
        return self.kind in ("web", "hub", "bucket", "host")


def parse(spec: ModelSpec, model: str, rules: Sources) -> Source:
    """Raises Invalid: InvalidSource, SourceNotAllowed or InvalidFileSet. ``model``: the Model's name."""
    text = spec.source
    if not text.isprintable() or any(character.isspace() or character == "\\" for character in text):
        raise _invalid(f"{public(text)!r} has characters that no source has")
    found = _parse(text, spec, model, rules)
    if spec.files or spec.mmproj:
        found = _with_files(found, spec)
    if spec.sha256 and not (found.stored_as or found.files or found.kind == "claim"):
        raise _invalid("a sha256 is of one file, and this names many: name it as well, in files or behind the name")
    return found


def key(spec: ModelSpec) -> str:
    """Folder of the cache. A set of files has one of its own, as two sets would push each other out; so has each choice
    of the main file, whose hash the folder is known by."""
    return _key(spec.source, spec.files, spec.mmproj)


def key_of(resource: Object) -> str:
    """The same of a Model that may not be valid."""
    spec = resource["spec"]
    return _key(spec["source"], tuple(spec.get("files") or ()), spec.get("mmproj", ""))


@lru_cache(maxsize=4096)
def _key(source: str, files: tuple[str, ...], mmproj: str) -> str:
    main = files[:1]
    others = sorted({*files, mmproj} - {*main, ""})
    return names.cache_key("\n".join((source, *main, *others)))


def _parse(text: str, spec: ModelSpec, model: str, rules: Sources) -> Source:
    if text.startswith("/"):
        return _host(text, spec, model, rules)
    scheme = SCHEME.match(text)
    if scheme is None:
        return _bare(text, spec, model)
    rest = text[scheme.end(1) + 1 :]
    if not rest.startswith("//"):
        raise _invalid(f"{public(text)!r} lacks the // behind its scheme")
    rest = rest[2:]
    match scheme[1].lower():
        case "http" | "https":
            return _web(text, spec, model, rules)
        case "hf":
            return _hub(rest.partition("?")[0].partition("#")[0].rstrip("/").split("/"), spec, model, text)
        case "s3":
            return _bucket(rest, spec, model)
        case "pvc":
            return _claim(rest, spec)
        case "file":
            if not rest.startswith("/"):
                raise _invalid(f"{text!r} names a host: a path begins with a third slash, file:///mnt/models/x.gguf")
            return _host(rest, spec, model, rules)
        case other:
            raise _invalid(f"the scheme {other} is not known, but http, https, hf, s3, pvc and file")


def _web(text: str, spec: ModelSpec, model: str, rules: Sources) -> Source:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise _invalid(f"{public(text)!r} is no address") from None
    if not host:
        raise _invalid(f"{public(text)!r} names no host")
    if host.rstrip(".") in HUB_HOSTS and port in (None, 80, 443):
        page = _hub_page(parts, spec, model, text)
        if page is not None:
            return page
    refused = Guard(rules.allowed_remote_hosts, rules.blocked_networks).refusal_of_name(host)
    if refused:
        raise Invalid("SourceNotAllowed", f"spec.source: {refused}: ask the operator to allow it")
    name = unquote(parts.path.rpartition("/")[2])
    if not name:
        raise _invalid(f"{public(text)!r} names no file: its path ends with a slash")
    url = urlunsplit((parts.scheme.lower(), parts.netloc, parts.path, parts.query, ""))
    return Source(kind="web", url=url, stored_as=_stored(name, spec, model))


def _hub_page(parts: SplitResult, spec: ModelSpec, model: str, text: str) -> Source | None:
    """A page of the hub: of a repository, or of one of its files. None: a file of a repository that has no owner."""
    words = [unquote(part) for part in parts.path.strip("/").split("/")]
    if len(words) > 1 and words[1] in FILE_PAGES and words[0] not in NOT_MODELS:
        return None
    if len(words) > 3 and words[2] in FILE_PAGES:
        return _hub([words[0], f"{words[1]}@{words[3]}", *words[4:]], spec, model, text)
    if len(words) == 4 and words[2] == "tree":
        return _hub([words[0], f"{words[1]}@{words[3]}"], spec, model, text)
    if len(words) > 2:
        raise _invalid(f"{public(text)!r} is neither the page of a repository nor of one of its files")
    return _hub(words, spec, model, text)


def _bare(text: str, spec: ModelSpec, model: str) -> Source:
    if "/" not in text:
        raise _invalid(f"{text!r} names nothing: write an address, a path, or {SOME_REPOSITORY}")
    return _hub(text.partition("?")[0].partition("#")[0].split("/"), spec, model, text)


def _hub(words: Sequence[str], spec: ModelSpec, model: str, text: str) -> Source:
    """``owner``, ``name[@revision]``, then the path of a file, which may end with ``@revision`` instead."""
    if words[0].lower() in NOT_MODELS:
        raise _invalid(f"{public(text)!r} is no model: what the hub has below {words[0]}/ is something else")
    owner, (name, at, revision), path = words[0], _second(words).partition("@"), list(words[2:])
    if revision == "refs" and len(path) >= 2:
        revision, path = "/".join((revision, *path[:2])), path[2:]
    if not at and path:
        path[-1], at, revision = _cut(path[-1])
    repository = f"{owner}/{name}"
    if not REPOSITORY.fullmatch(repository):
        raise _invalid(f"{public(text)!r} is not {SOME_REPOSITORY}")
    if at and (not REVISION.fullmatch(revision) or _fault(revision)):
        raise _invalid(f"{revision!r} is no branch, tag or commit of {repository}")
    full = f"{repository}@{revision}" if revision else repository
    if not path:
        return Source(kind="repository", url=f"hf://{full}", repository=full)
    file = "/".join(path)
    if _fault(file):
        raise _invalid(f"{file!r} is not a path inside {repository}")
    return Source(kind="hub", url=f"hf://{full}", files=(file,), stored_as=_stored(path[-1], spec, model))


def _second(words: Sequence[str]) -> str:
    return words[1] if len(words) > 1 else ""


def _cut(last: str) -> tuple[str, str, str]:
    name, at, revision = last.rpartition("@")
    return (name, at, revision) if at else (last, "", "")


def _bucket(rest: str, spec: ModelSpec, model: str) -> Source:
    bucket, _slash, place = rest.partition("/")
    if not BUCKET.fullmatch(bucket):
        raise _invalid(f"{bucket!r} is not the name of a bucket: s3://bucket/key")
    place = place.strip("/")
    if place and _fault(place):
        raise _invalid(f"{place!r} is not a key of {bucket}")
    if spec.files or not (spec.format == "gguf" or FILE.fullmatch(place.rpartition("/")[2])):
        return Source(kind="bucket", url=f"s3://{bucket}/{place}".rstrip("/"))
    if not place:
        raise _invalid(f"s3://{bucket} names no file of the bucket")
    return Source(kind="bucket", url=f"s3://{bucket}/{place}", stored_as=_stored(place.rpartition("/")[2], spec, model))


def _claim(rest: str, spec: ModelSpec) -> Source:
    claim, _slash, path = rest.partition("/")
    path = path.rstrip("/")
    if not CLAIM.fullmatch(claim):
        raise _invalid(f"{claim!r} is not the name of a claim; write {ROOM}")
    if path and _fault(path):
        raise _invalid(f"{path!r} is not a path inside the claim {claim}")
    if not path and spec.format == "gguf":
        raise _invalid(f"it names no file of the claim {claim}; write {ROOM}")
    return Source(kind="claim", claim=claim, path=path)


def _host(path: str, spec: ModelSpec, model: str, rules: Sources) -> Source:
    place = path.rstrip("/")
    if not place or _fault(place[1:]):
        raise _invalid(f"{path!r} is not the path of a file")
    if spec.hardware.accelerator != "metal" and not any(_below(place, root) for root in rules.allowed_host_path_roots):
        text = f"spec.source: {place} is not below a folder of the nodes that the operator allows"
        raise Invalid("SourceNotAllowed", f"{text}: {', '.join(rules.allowed_host_path_roots) or 'there is none'}")
    last = place.rpartition("/")[2]
    single = spec.format == "gguf" or FILE.fullmatch(last)
    return Source(kind="host", path=place, stored_as=_stored(last, spec, model) if single else "")


def on_node(path: str, rules: Sources) -> bool:
    """Whether the operator allows a path of the nodes: one of these folders, or what is below it."""
    place = path.rstrip("/")
    named = any(root.rstrip("/") == place for root in rules.allowed_host_path_roots)
    return not _fault(place[1:]) and (named or any(_below(place, root) for root in rules.allowed_host_path_roots))


def _below(place: str, root: str) -> bool:
    folder = root.rstrip("/")
    return root.startswith("/") and not _fault(folder[1:] or "x") and place.startswith(f"{folder}/")


def _stored(name: str, spec: ModelSpec, model: str) -> str:
    return names.file_name(name, model) if spec.format == "gguf" else names.clean(name) or "model"


def _with_files(found: Source, spec: ModelSpec) -> Source:
    if found.kind not in ("repository", "bucket"):
        raise _bad_set("files and mmproj are of a repository of the hub or a folder of a bucket, not of this source")
    if not spec.files:
        raise _bad_set("mmproj belongs to files, which is missing")
    for file in (*spec.files, spec.mmproj):
        if file and (fault := _fault(file)):
            raise _bad_set(f"{file!r} {fault}")
    if GLOB.search(spec.mmproj):
        raise _bad_set(f"mmproj {spec.mmproj!r} must be one file's path, not a pattern")
    kind: Kind = "hub" if found.kind == "repository" else "bucket"
    files = tuple(dict.fromkeys(file for file in (*spec.files, spec.mmproj) if file))
    return msgspec.structs.replace(found, kind=kind, files=files, stored_as="")


def _fault(path: str) -> str:
    """What is wrong with a path that is to stay inside of something; empty: nothing."""
    if path.startswith("/"):
        return "begins with a slash"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "has an empty part, . or .. in it"
    if "\\" in path or not path.isprintable():
        return "has characters that no path has"
    return ""


def _invalid(message: str) -> Invalid:
    return Invalid("InvalidSource", f"spec.source: {message}")


def _bad_set(message: str) -> Invalid:
    return Invalid("InvalidFileSet", f"spec.files: {message}")
