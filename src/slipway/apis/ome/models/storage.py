"""Storage: the parsed and checked source of a model's files, and their location on nodes or on a claim. Pure except for
a cache."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Collection, Container, Iterable, Mapping
from itertools import islice
from typing import NamedTuple

import msgspec

from slipway.apis.ome import names
from slipway.apis.ome.settings import ome
from slipway.apis.ome.types.model import StorageSpec
from slipway.artifacts.locations.huggingface import what_to_write
from slipway.artifacts.locations.paths import fault_inside
from slipway.artifacts.locations.redaction import redact_url
from slipway.kube.objects import (
    PERSISTENT_VOLUME_CLAIM,
    Key,
    Kind,
    Object,
    annotations_of,
    deleting,
    key,
    labels,
    uid,
)
from slipway.serving.contract.api import InvalidSpecError, Reference
from slipway.serving.contract.settings import Settings
from slipway.spelling import did_you_mean
from slipway.weights.nodes import Placement, mark, placement
from slipway.weights.sources.source import CLAIM, Request, SourceError, clean, parse

FETCHED = ("hf", "s3", "gs", "http", "https")
SCHEMES = (*FETCHED, "local", "pvc", "vendor")
NOT_SERVED = ("az", "github", "oci")
KINDS: dict[str, Kind] = {
    kind.kind: kind for kind in (names.BASE_MODEL, names.CLUSTER_BASE_MODEL, names.FINE_TUNED_WEIGHT)
}
NOT_ALLOWED = "PathNotAllowed"
OWN = ".slipway"
"""Prefix of file names that are reserved for the loader."""
LONGEST_PATH = 512
LONGEST = 64 << 10
"""Maximum memory of a spec in bytes, estimated. It suffices for about 600 node names."""
MOST_CACHED = 32 << 20
"""Maximum memory of all cached specs in bytes, estimated."""
USED = "node:"
"""Prefix of a node directory's hash in the annotation ``slipway.inference/uses`` of pods."""


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A model's parsed storage: the source of its files, and their location on nodes or on a claim."""

    scheme: str
    spec: StorageSpec
    path: str
    """Path of the files in containers. It is also their directory on nodes, unless the files are on a claim. Empty for
    the scheme ``vendor`` without a path."""
    url: str = ""
    """URL from which the loader downloads the files. Empty if nothing is downloaded."""
    region: str = ""
    files: tuple[str, ...] = ()
    """Files of the repository to load. Empty to load all files."""
    stored_as: str = ""
    """File name under which a single downloaded file is stored. Empty if the source is not a single file."""
    root: str = ""
    """The operator's directory that contains ``path``. Empty if the model has no files on nodes."""
    claim: Reference | None = None
    sub_path: str = ""
    """Path of the files inside the claim."""
    placement: Placement = Placement()

    @property
    def identity(self) -> str:
        """Digest of the source and location of the files. It changes if either changes."""
        text = f"{self.spec.storage_uri}\0{self.path}\0{self.region}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a model that pods need to read its files."""

    name: str
    kind: Kind
    namespace: str
    """Namespace of the model. Empty if the model is cluster-scoped."""
    uid: str
    """Uid of the model."""
    mark: str
    """Name of the model's node label without its prefix."""
    is_deleted: bool = False
    """Whether the model is being deleted."""
    path: str
    """Path of the files in containers, and on nodes unless there is a claim. Empty if there is nothing to mount."""
    claim: str = ""
    claim_namespace: str = ""
    sub_path: str = ""
    node_label: str = ""
    """Node label that has the value ``Ready`` on nodes with the files. Empty if pods may run on any node."""
    vendor: str = ""
    category: str = "SMALL"
    format_name: str = ""
    format_version: str = ""
    identity: str
    """Digest of the source and location of the files. Pod templates contain the digest, so a change leads to a
    rollout."""


def kind_of(model: Object) -> Kind:
    return KINDS[model["kind"]]


def node_label(model: Object) -> str:
    return names.node_label(kind_of(model), *key(model))


def mount_of(model: Object, settings: Settings, stored: Stored | None = None) -> Mount:
    """Return the mount with which pods read a model. ``stored``: the model's storage if the caller has already parsed
    it. Raise InvalidSpecError if the storage cannot be served."""
    stored, spec, (namespace, name) = stored or parse_storage(model, settings), model["spec"], key(model)
    form = spec.get("modelFormat") or {}
    return Mount(
        name=name,
        kind=kind_of(model),
        namespace=namespace,
        uid=uid(model),
        mark=mark(node_label(model)),
        is_deleted=deleting(model),
        path=stored.path if stored.claim or stored.root else "",
        claim=stored.claim.name if stored.claim else "",
        claim_namespace=stored.claim.namespace if stored.claim else "",
        sub_path=stored.sub_path,
        node_label="" if stored.claim else node_label(model),
        vendor=spec.get("vendor", ""),
        category=annotations_of(model).get(names.MODEL_CATEGORY, "SMALL"),
        format_name=form.get("name", ""),
        format_version=form.get("version", ""),
        identity=stored.identity,
    )


def use_of(path: str) -> str:
    """Return the text for a node directory in the annotation ``slipway.inference/uses``, with which pods declare that
    they read the directory. In the annotation, spaces separate the directories."""
    return f"{USED}{hashlib.sha256(path.encode()).hexdigest()[:16]}"


def keeps_files(model: Object) -> bool:
    """Whether the model's files stay on the nodes when the model is deleted."""
    return labels(model).get(names.RESERVED_LABEL) == "true"


def root_of(path: str, settings: Settings) -> str:
    """Return the operator's directory that contains a node path, or an empty string if none does or the path is
    invalid."""
    if not _is_path(path):
        return ""
    own = ome(settings)
    return max((root for root in _roots(own.model_roots + own.shared_roots) if _below(path, root)), key=len, default="")


def is_placed(path: str, namespace: str, settings: Settings) -> bool:
    """Whether models of a namespace may use a node directory. It must be below the namespace's own directory, or below
    a directory that all namespaces share, and must neither be nor contain one of the operator's directories. Always
    True for the empty namespace of cluster-scoped models."""
    if not namespace:
        return True
    own, root = ome(settings), root_of(path, settings)
    if any(one == path or _below(one, path) for one in _roots(own.model_roots + own.shared_roots)):
        return False
    return _below(path, _own_folder(root, namespace)) or any(_below(path, one) for one in _roots(own.shared_roots))


def _own_folder(root: str, namespace: str) -> str:
    """Return a namespace's directory below one of the operator's directories. Directories named like URL schemes belong
    to cluster-scoped models without a path, so a namespace with such a name gets a subdirectory."""
    return f"{root}/{namespace}/{namespace}" if namespace in FETCHED else f"{root}/{namespace}"


def _roots(roots: Iterable[str]) -> list[str]:
    return [root.rstrip("/") for root in roots if not fault_inside(root.strip("/"))]


def _below(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}/")


def _is_path(path: str) -> bool:
    """Whether a pod can mount a volume at a path, and the path contains no name reserved for the loader. Kubernetes
    does not allow colons in mount paths."""
    valid = len(path) <= LONGEST_PATH and path.startswith("/") and ":" not in path and not fault_inside(path[1:])
    return valid and f"/{OWN}" not in path


class _Cached(NamedTuple):
    """The parsed storage of one version of a model, or the error from parsing it."""

    spec: object
    settings: Settings
    stored: Stored | InvalidSpecError
    size: int


class Cache:
    """Cache of the parsed storage of models. ``most``: maximum memory of all entries in bytes, estimated. The least
    recently used entries are evicted first."""

    def __init__(self, most: int = MOST_CACHED) -> None:
        self._entries: OrderedDict[tuple[Key, str, Container[str]], _Cached] = OrderedDict()
        self._most, self.size = most, 0

    def get(self, model: Object, settings: Settings, allowed: Container[str]) -> Stored | InvalidSpecError:
        """Return the model's storage, or the error if it cannot be served. ``allowed``: see :func:`parse_storage`.
        Storage that is too large is not cached, and leads to an error each time."""
        place, spec = (key(model), model["kind"], allowed), model["spec"].get("storage")
        entry = self._entries.get(place)
        if entry is not None and entry.spec is spec and entry.settings is settings:
            self._entries.move_to_end(place)
            return entry.stored
        self._drop(place)
        size = _size(spec)
        if size > LONGEST:
            text = f"The storage is larger than {LONGEST >> 10} KiB. Shorten it."
            return InvalidSpecError("InvalidSpec", text)
        try:
            stored: Stored | InvalidSpecError = _parse(model, settings, allowed)
        except InvalidSpecError as error:
            stored = InvalidSpecError(error.reason, error.message)  # no traceback, which would keep frames alive
        if isinstance(allowed, Collection):
            size += sum(map(len, allowed))
        self._entries[place] = _Cached(spec, settings, stored, size)
        self.size += size
        while self.size > self._most:
            self._drop(next(iter(self._entries)))
        return stored

    def _drop(self, place: tuple[Key, str, Container[str]]) -> None:
        if entry := self._entries.pop(place, None):
            self.size -= entry.size


def _size(spec: object) -> int:
    """Return the estimated memory of a spec with its cache entry, in bytes. The computation stops above LONGEST, so
    that longer specs do not take more time."""
    size, rest = 1024, [spec]
    while rest and size <= LONGEST:
        one = rest.pop()
        size += 64 + (len(one) if isinstance(one, str) else 0)
        if isinstance(one, Mapping):
            rest += islice((part for pair in one.items() for part in pair), LONGEST // 64)
        elif isinstance(one, list):
            rest += one[: LONGEST // 64]
    return size


_CACHE = Cache()


def parse_storage(model: Object, settings: Settings, allowed: Container[str] = ()) -> Stored:
    """Parse a model's storage, once for each version of the model. ``allowed``: additional directories that the model
    may use, because nodes have its files there. Raise InvalidSpecError if the storage cannot be served."""
    stored = _CACHE.get(model, settings, allowed)
    if isinstance(stored, InvalidSpecError):
        raise InvalidSpecError(stored.reason, stored.message)
    return stored


def _parse(model: Object, settings: Settings, allowed: Container[str]) -> Stored:
    try:
        spec = msgspec.convert(model["spec"].get("storage"), StorageSpec)
        placed = placement(spec.node_selector, spec.node_affinity)
    except ValueError as error:
        raise InvalidSpecError("InvalidSpec", f"The storage cannot be read: {error}.") from None
    scheme, separator, rest = spec.storage_uri.partition("://")
    if not separator or not rest or not rest.isprintable() or any(letter.isspace() for letter in rest):
        advice = what_to_write(spec.storage_uri, "hf://") or ": write hf://owner/repository"
        raise _invalid(f"{redact_url(spec.storage_uri)!r} does not name any files{advice}")
    if scheme in NOT_SERVED:
        text = f"Files of {scheme}:// are not supported: copy them to a hub, an S3 bucket or a claim."
        raise InvalidSpecError("SourceNotServed", text)
    stored = Stored(scheme=scheme, spec=spec, path=(spec.path or "").rstrip("/"), placement=placed)
    if scheme == "pvc":
        return _place_on_claim(stored, rest, model, settings)
    if scheme == "vendor":
        return stored if not stored.path else _place_on_nodes(stored, model, settings, allowed)
    if scheme == "local":
        named = msgspec.structs.replace(stored, path=stored.path or rest.rstrip("/"))
        return _place_on_nodes(named, model, settings, allowed)
    if scheme not in FETCHED:
        raise _invalid(f"unknown scheme {scheme[:40]}. Use {', '.join(SCHEMES)}{did_you_mean(scheme, SCHEMES)}")
    return _place_on_nodes(_parse_source(stored, rest, model, settings, allowed), model, settings, allowed)


def _parse_source(stored: Stored, rest: str, model: Object, settings: Settings, allowed: Container[str]) -> Stored:
    text, region = stored.spec.storage_uri, stored.spec.parameters.get("region", "")
    if stored.scheme in ("s3", "gs"):
        bucket, slash, place = rest.partition("/")
        bucket, _at, bucket_region = bucket.partition("@")
        region, text = bucket_region or region, f"s3://{bucket}{slash}{place}"
    try:
        source = parse(Request(text=text), settings.sources)
    except SourceError as error:
        raise InvalidSpecError(error.reason, f"{error.message[:1].upper()}{error.message[1:]}.") from None
    url = source.url if stored.scheme != "gs" else f"gs{source.url.removeprefix('s3')}"
    scheme = url.partition("://")[0]  # the address of a page on the hub is also accepted as a repository
    path = stored.path or _default_path(f"{scheme}/{_folder(redact_url(url))}", key(model).namespace, settings, allowed)
    return msgspec.structs.replace(
        stored, scheme=scheme, url=url, region=region, files=source.files, stored_as=source.stored_as, path=path
    )


def _default_path(folder: str, namespace: str, settings: Settings, allowed: Container[str]) -> str:
    """Return the directory of a model without a path: for a cluster-scoped model, or if ``allowed`` contains it, the
    directory ``folder`` of the first root, which earlier versions used for all models. Otherwise, return ``folder`` in
    the namespace's own directory."""
    root = _first_root(settings)
    former = f"{root}/{folder}"
    return former if not namespace or former in allowed else f"{_own_folder(root, namespace)}/{folder}"


def _folder(url: str) -> str:
    """Return a relative directory name for a source URL. Different URLs have different names."""
    digest = hashlib.sha256(url.encode()).hexdigest()[:8]
    return f"{clean(url.partition('://')[2])[-80:]}-{digest}"


def _first_root(settings: Settings) -> str:
    roots = ome(settings).model_roots
    return roots[0].rstrip("/") if roots else ""


def _place_on_nodes(stored: Stored, model: Object, settings: Settings, permitted: Container[str]) -> Stored:
    root, namespace = root_of(stored.path, settings), key(model).namespace
    if not root or not (is_placed(stored.path, namespace, settings) or stored.path in permitted):
        own = ome(settings)
        folders = [_own_folder(one, namespace) if namespace else one for one in _roots(own.model_roots)]
        allowed = ", ".join((*folders, *_roots(own.shared_roots))) or "there is none"
        text = f"{stored.path!r} is not in a node directory that the operator allows: {allowed}."
        raise InvalidSpecError(NOT_ALLOWED, text)
    return msgspec.structs.replace(stored, root=root)


def _place_on_claim(stored: Stored, rest: str, model: Object, settings: Settings) -> Stored:
    place, _slash, sub_path = rest.partition("/")
    home, colon, claim = place.rpartition(":")
    own = key(model).namespace or ome(settings).namespace
    sub_path = sub_path.rstrip("/")
    if not CLAIM.fullmatch(claim) or (colon and not home) or (sub_path and fault_inside(sub_path)):
        raise _invalid(f"{stored.spec.storage_uri!r} does not name a path in a claim: write pvc://claim/path")
    if home not in ("", own):
        text = f"The claim {claim} is in the namespace {home}. Pods can only use claims in their own: copy it to {own}."
        raise InvalidSpecError("ClaimOfOtherNamespace", text)
    path = stored.path or f"{_first_root(settings) or '/mnt/models'}/{key(model).name}"
    if not _is_path(path):
        raise InvalidSpecError(NOT_ALLOWED, f"{path!r} is not a valid path for files in a container.")
    return msgspec.structs.replace(
        stored, path=path, claim=Reference(PERSISTENT_VOLUME_CLAIM, own, claim), sub_path=sub_path
    )


def _invalid(message: str) -> InvalidSpecError:
    return InvalidSpecError("InvalidSource", f"{message[:1].upper()}{message[1:]}.")
