"""Spec: a Model, parsed and checked, and its folder in the namespace's cache. Pure."""

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
"""Of the parts of a source whose key is remembered; nearly all have fewer."""


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A Model with a valid source."""

    name: str
    namespace: str
    resource: Object
    spec: ModelSpec
    source: Source
    settings: Settings
    shared: bool = True
    """Whether it is wanted in the cache of its namespace."""
    controller_key: str = ""
    """See World."""

    @property
    def place(self) -> Place:
        """The Model's place in the cache of its namespace, even if it does not use the cache."""
        return place(self.namespace, key(self.spec))

    @property
    def on_a_mac(self) -> bool:
        """Whether it is served outside of the cluster, so that nothing is done about it inside."""
        return self.spec.hardware.accelerator == "metal"

    @property
    def cacheable(self) -> bool:
        """Whether a cache helps to serve it."""
        return self.source.cached and not self.on_a_mac

    @property
    def cached(self) -> bool:
        """Whether it is brought into the cache of its namespace."""
        return self.cacheable and llmkube(self.settings).model_cache.persistence == "Cached" and self.shared

    @property
    def by_each_pod(self) -> bool:
        """Whether it is in no cache, so that each pod brings it for itself."""
        return self.cacheable and not self.cached

    @property
    def in_claim(self) -> bool:
        return self.source.kind == "claim" and not self.on_a_mac

    @property
    def claim(self) -> Reference | None:
        """The claim that has, or will have, its weights."""
        if self.cached:
            return self.place.claim
        return claim_reference(self.namespace, self.source.claim) if self.in_claim else None

    def path(self, report: Report | None) -> str:
        """The path of the main file in a container, or of the folder if there is none. ``report`` has the file that a
        pattern matched, and its stored name if another Model of the same source stored it."""
        if self.in_claim:
            return f"{names.SOURCE}/{self.source.path}".rstrip("/")
        file = report.file if report else ""
        shared = file if self.cached and self.source.stored_as else ""
        main = shared or self.source.main or (file if self.source.files else "")
        return f"{self.place.path}/{main}" if main else self.place.path


def parse_model(resource: Object, settings: Settings) -> Model:
    """Parses a Model. Raises InvalidSpecError: InvalidSource, SourceNotAllowed or InvalidFileSet."""
    try:
        spec = msgspec.convert(resource["spec"], ModelSpec)
    except msgspec.ValidationError as error:
        raise InvalidSpecError("InvalidSource", f"spec: {error}") from error
    namespace, name = object_key(resource)
    weights_source = source_of(spec, name, settings.sources)
    return Model(name=name, namespace=namespace, resource=resource, spec=spec, source=weights_source, settings=settings)


def source_of(spec: ModelSpec, name: str, rules: Sources) -> Source:
    """Raises InvalidSpecError: InvalidSource, SourceNotAllowed or InvalidFileSet. ``name``: the Model's."""
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
    """A folder of a namespace's cache."""
    claim = claim_reference(namespace, names.CLAIM)
    return Place(claim=claim, prefix=names.LOADED, root=names.CACHE, folder=key)


def key(spec: ModelSpec) -> str:
    """Returns the folder of the cache. Each set of files has its own, because two sets would replace each other; so has
    each choice of the main file, whose hash identifies the folder."""
    return _key(spec.source, spec.files, spec.mmproj)


def key_of(resource: Object) -> str:
    """Returns the folder for a Model that may not be valid."""
    spec = resource["spec"]
    return _key(spec["source"], tuple(spec.get("files") or ()), spec.get("mmproj", ""))


def _key(text: str, files: tuple[str, ...], mmproj: str) -> str:
    """Long texts are not cached: authors decide how long a Model is, and how often it changes."""
    characters = len(text) + len(mmproj) + sum(len(file) + 1 for file in files)
    compute = _remembered if characters <= REMEMBERED_CHARACTERS else _computed
    return compute(text, files, mmproj)


def _computed(text: str, files: tuple[str, ...], mmproj: str) -> str:
    main = files[:1]
    others = sorted({*files, mmproj} - {*main, ""})
    return names.cache_key("\n".join((text, *main, *others)))


_remembered = lru_cache(maxsize=16384)(_computed)
