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
"""Maximum length of a source's parts whose key is cached; nearly all are shorter."""


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A Model with a valid source."""

    name: str
    namespace: str
    resource: Object
    spec: ModelSpec
    source: Source
    settings: Settings
    shared: bool = True
    """Whether the namespace's cache should contain it."""
    controller_key: str = ""
    """The controller's public key; see World."""

    @property
    def place(self) -> Place:
        """The Model's place in the cache of its namespace, even if it does not use the cache."""
        return place(self.namespace, key(self.spec))

    @property
    def on_a_mac(self) -> bool:
        """Whether it is served outside of the cluster, so that nothing needs to be done inside."""
        return self.spec.hardware.accelerator == "metal"

    @property
    def cacheable(self) -> bool:
        """Whether a cache helps in serving it."""
        return self.source.cached and not self.on_a_mac

    @property
    def cached(self) -> bool:
        """Whether it is loaded into its namespace's cache."""
        return self.cacheable and llmkube(self.settings).model_cache.persistence == "Cached" and self.shared

    @property
    def by_each_pod(self) -> bool:
        """Whether it is in no cache, so that each pod downloads it."""
        return self.cacheable and not self.cached

    @property
    def in_claim(self) -> bool:
        return self.source.kind == "claim" and not self.on_a_mac

    @property
    def claim(self) -> Reference | None:
        """The claim that has, or will have, its weights; None if they are not in a claim."""
        if self.cached:
            return self.place.claim
        return claim_reference(self.namespace, self.source.claim) if self.in_claim else None

    def path(self, report: Report | None) -> str:
        """Returns the path of the main file in a container, or of the folder if there is none. ``report`` has the file
        that a pattern matched, or the file name if another Model of the same source stored it."""
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
    """Parses the source of a spec. Raises InvalidSpecError: InvalidSource, SourceNotAllowed or InvalidFileSet.
    ``name``: the Model's."""
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
    """Returns a folder of a namespace's cache."""
    claim = claim_reference(namespace, names.CLAIM)
    return Place(claim=claim, prefix=names.LOADED, root=names.CACHE, folder=key)


def key(spec: ModelSpec) -> str:
    """Returns the name of the cache folder. Each set of files has its own folder, because two sets would replace each
    other; so does each choice of the main file, whose hash identifies the folder."""
    return _key(spec.source, spec.files, spec.mmproj)


def key_of(resource: Object) -> str:
    """Returns the name of the cache folder for a Model, valid or not."""
    spec = resource["spec"]
    return _key(spec["source"], tuple(spec.get("files") or ()), spec.get("mmproj", ""))


def _key(text: str, files: tuple[str, ...], mmproj: str) -> str:
    """Returns the name of the folder for these files of a source. Long texts are not cached, because authors control
    their length and how often they change."""
    characters = len(text) + len(mmproj) + sum(len(file) + 1 for file in files)
    compute = _remembered if characters <= REMEMBERED_CHARACTERS else _computed
    return compute(text, files, mmproj)


def _computed(text: str, files: tuple[str, ...], mmproj: str) -> str:
    main = files[:1]
    others = sorted({*files, mmproj} - {*main, ""})
    return names.cache_key("\n".join((text, *main, *others)))


_remembered = lru_cache(maxsize=16384)(_computed)
