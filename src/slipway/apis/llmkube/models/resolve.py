"""Parsing and validation of a Model, together with the observed state of its weights. Pure."""

from __future__ import annotations

from itertools import islice

import msgspec

from slipway.apis.llmkube import names
from slipway.apis.llmkube.models import cache, usage
from slipway.apis.llmkube.models.cache import Folder, Record
from slipway.apis.llmkube.models.spec import Model, key_of, parse_model
from slipway.kube.objects import Object, deleting, key, uid
from slipway.serving.contract.api import InvalidSpecError, Reference, World
from slipway.serving.contract.settings import Settings
from slipway.weights.jobs.loads import is_late
from slipway.weights.place import claim_reference, records

MOST_TAKEN_OVER = 16
"""Maximum number of records that a Model takes over from a claim at a time."""


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """A Model, valid or not, and the relevant cache directories."""

    world: World
    resource: Object
    model: Model | InvalidSpecError
    claim: Object | None
    """The claim of the namespace's cache; None: it does not exist."""
    folder: Folder
    """Cache directory of the Model's source and files, even if the Model does not use the cache."""
    record: Record | None
    """Record of the Model's cache directory; None: the directory has no known files."""
    held: tuple[Folder, ...]
    """Cache directories of which the Model has records."""
    orphaned: tuple[Folder, ...]
    """Cache directories of which only the claim has a record, which the Model takes over."""
    settling_seconds: float
    """Seconds to wait before filling the cache; 0: none."""

    @property
    def leaving(self) -> bool:
        return deleting(self.resource)

    @property
    def is_overdue(self) -> bool:
        """Whether the deletion of the Model has waited for Jobs up to the time limit."""
        return is_late(self.resource["metadata"].get("deletionTimestamp"), self.world.now)

    @property
    def claim_leaving(self) -> bool:
        return self.claim is not None and deleting(self.claim)

    @property
    def is_source_checker(self) -> bool:
        """Whether this Model checks the source: it is the oldest user of the cache directory that accepts the
        content."""
        record = self.record
        content = (user for user in self.folder.users if record is None or expects(user, record))
        oldest = next(content, None)
        return oldest is not None and uid(oldest) == uid(self.resource)

    @property
    def readers(self) -> list[str]:
        """Names of the services that use the cached weights of a Model that is being deleted. The list is empty if the
        weights are incomplete, or another Model keeps them."""
        if self.record is None or not self.record.complete or self.folder.users:
            return []
        return usage.readers(self.world, self.resource, self.folder.key)

    def valid(self) -> Model:
        """Return the valid Model. Raise InvalidSpecError, with the reason, if its spec or source is invalid."""
        if isinstance(self.model, InvalidSpecError):
            raise self.model
        return self.model


def resolve(world: World) -> ModelView:
    resource, namespace = world.resource, key(world.resource).namespace
    claim = world.get(cache.claim_reference(namespace))
    own = cache.folder(world, namespace, key_of(resource), claim)
    others = sorted(cache.read_records(resource).keys())
    held = (own if name == own.key else cache.folder(world, namespace, name, claim) for name in others)
    return ModelView(
        world=world,
        resource=resource,
        model=_model(world),
        claim=claim,
        folder=own,
        record=own.record,
        held=tuple(held),
        orphaned=_find_orphaned(world, claim, own),
        settling_seconds=usage.settling_seconds(world),
    )


def references(resource: Object, settings: Settings) -> tuple[Reference, ...]:
    """Return the claim that the source of a Model names. The result is empty if the Model is invalid or has another
    kind of source."""
    try:
        model = parse_model(resource, settings)
    except InvalidSpecError:
        return ()
    return (claim_reference(model.namespace, model.source.claim),) if model.in_claim else ()


def expects(resource: Object, record: Record) -> bool:
    """Whether a Model, valid or not, accepts the hash of the cached files. A Model without a hash accepts any."""
    expected: str = resource["spec"].get("sha256") or ""
    return expected.lower() in ("", record.report.sha256)


def _model(world: World) -> Model | InvalidSpecError:
    try:
        model = parse_model(world.resource, world.settings)
    except InvalidSpecError as error:
        return error
    shared = usage.wants_cache(world, world.resource)
    return msgspec.structs.replace(model, shared=shared, controller_key=world.controller_key)


def _find_orphaned(world: World, claim: Object | None, own: Folder) -> tuple[Folder, ...]:
    """Return the cache directories that this Model takes over, because only the claim has their records, as in earlier
    versions.

    Any user with access to the claim can write records. Therefore, only the oldest Model considers all of them, and any
    other Model considers only records that may be its own. Excess records follow later, because each change of a Model
    reconciles the Model again.
    """
    if claim is None or deleting(claim):
        return ()
    me, texts = world.resource, records(claim, names.LOADED)
    if not texts:
        return ()
    eldest = cache.is_eldest(world, me)
    named = sorted(texts) if eldest else sorted(name for name, text in texts.items() if uid(me) in text)
    keys = (name for name in dict.fromkeys((own.key, *named)) if name in texts and cache.KEY.fullmatch(name))
    folders = (cache.folder(world, key(me).namespace, name, claim) for name in keys)
    falling = (one for one in folders if one.holder is None and _falls_to(world, one, eldest=eldest))
    return tuple(islice(falling, MOST_TAKEN_OVER))


def _falls_to(world: World, folder: Folder, *, eldest: bool) -> bool:
    heir = cache.find_heir(world, folder)
    return uid(heir) == uid(world.resource) if heir is not None else eldest
