"""A parsed and validated Model, and its directory in the namespace's cache. Pure."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from slipway.apis.llmkube import names
from slipway.apis.llmkube.settings import llmkube
from slipway.apis.llmkube.types.model import ModelSpec
from slipway.artifacts.documents.report import Report
from slipway.kube.objects import Object
from slipway.kube.objects import key as object_key
from slipway.serving.contract.api import InvalidSpecError, Reference
from slipway.serving.contract.settings import Settings, Sources
from slipway.weights.place import Place, claim_reference
from slipway.weights.sources import source
from slipway.weights.sources.source import Request, Source, SourceError

REMEMBERED_CHARACTERS = 1024
"""Maximum total number of characters in a source and its file names whose cache key stays in memory. Nearly all are
shorter."""


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A Model with a valid spec and source."""

    name: str
    namespace: str
    resource: Object
    spec: ModelSpec
    source: Source
    settings: Settings
    shared: bool = True
    """Whether the namespace's cache should contain the weights."""
    controller_key: str = ""
    """The controller's public key, as in :class:`World`."""

    @property
    def place(self) -> Place:
        """The Model's directory in the cache of its namespace, even if the Model does not use the cache."""
        return place(self.namespace, key(self.spec))

    @property
    def on_a_mac(self) -> bool:
        """Whether the Model is served on a Mac outside of the cluster. Nothing is loaded in the cluster for such a
        Model."""
        return self.spec.hardware.accelerator == "metal"

    @property
    def cacheable(self) -> bool:
        """Whether the weights must be downloaded in the cluster, so that a cache is useful."""
        return self.source.cached and not self.on_a_mac

    @property
    def cached(self) -> bool:
        """Whether the Model's Job loads the weights into the namespace's cache."""
        return self.cacheable and llmkube(self.settings).model_cache.persistence == "Cached" and self.shared

    @property
    def by_each_pod(self) -> bool:
        """Whether each pod downloads the weights itself, because they are not in the namespace's cache."""
        return self.cacheable and not self.cached

    @property
    def in_claim(self) -> bool:
        return self.source.kind == "claim" and not self.on_a_mac

    @property
    def claim(self) -> Reference | None:
        """The claim that contains the weights, or will contain them; None: they are not in a claim."""
        if self.cached:
            return self.place.claim
        return claim_reference(self.namespace, self.source.claim) if self.in_claim else None

    def path(self, report: Report | None) -> str:
        """Return the path of the main file in a container, or of the directory if there is no main file. ``report``
        names the file that matched a pattern, or the file of another Model with the same source; None: there is no
        report yet. For weights in a claim, return the path in the source."""
        if self.in_claim:
            return f"{names.SOURCE}/{self.source.path}".rstrip("/")
        file = report.file if report else ""
        shared = file if self.cached and self.source.stored_as else ""
        main = shared or self.source.main or (file if self.source.files else "")
        return f"{self.place.path}/{main}" if main else self.place.path


def parse_model(resource: Object, settings: Settings) -> Model:
    """Parse a Model. Raise InvalidSpecError with the reason InvalidSource, SourceNotAllowed or InvalidFileSet."""
    try:
        spec = msgspec.convert(resource["spec"], ModelSpec)
    except msgspec.ValidationError as error:
        raise InvalidSpecError("InvalidSource", f"spec: {error}") from error
    namespace, name = object_key(resource)
    weights_source = source_of(spec, name, settings.sources)
    return Model(name=name, namespace=namespace, resource=resource, spec=spec, source=weights_source, settings=settings)


def source_of(spec: ModelSpec, name: str, rules: Sources) -> Source:
    """Parse the source in the spec of the Model ``name``. Raise InvalidSpecError with the reason InvalidSource,
    SourceNotAllowed or InvalidFileSet."""
    request = Request(
        text=spec.source,
        name=name,
        files=spec.files,
        companion=spec.mmproj,
        gguf=spec.format == "gguf",
        hashed=bool(spec.sha256),
        any_path=spec.hardware.accelerator == "metal",
    )
    try:
        return source.parse(request, rules)
    except SourceError as error:
        field = "spec.files" if error.reason == "InvalidFileSet" else "spec.source"
        raise InvalidSpecError(error.reason, f"{field}: {error.message}") from error


def place(namespace: str, key: str) -> Place:
    """Return the directory in a namespace's cache for a cache key."""
    claim = claim_reference(namespace, names.CLAIM)
    return Place(claim=claim, prefix=names.LOADED, root=names.CACHE, folder=key)


def key(spec: ModelSpec) -> str:
    """Return the cache key of a spec, which is the name of its directory in the cache. Each set of files has its own
    key, because two sets in one directory would replace each other. The choice of the main file also changes the key,
    because the hash of the main file identifies the content."""
    return _key(spec.source, spec.files, spec.mmproj)


def key_of(resource: Object) -> str:
    """Return the cache key of a Model, which may be invalid."""
    spec = resource["spec"]
    return _key(spec["source"], tuple(spec.get("files") or ()), spec.get("mmproj", ""))


def _key(text: str, files: tuple[str, ...], mmproj: str) -> str:
    """Return the cache key for these files of a source. The keys of long texts do not stay in memory, because authors
    control the length and number of such texts."""
    characters = len(text) + len(mmproj) + sum(len(file) + 1 for file in files)
    compute = _remembered if characters <= REMEMBERED_CHARACTERS else _computed
    return compute(text, files, mmproj)


def _computed(text: str, files: tuple[str, ...], mmproj: str) -> str:
    main = files[:1]
    others = sorted({*files, mmproj} - {*main, ""})
    return names.cache_key("\n".join((text, *main, *others)))


_remembered = lru_cache(maxsize=16384)(_computed)
