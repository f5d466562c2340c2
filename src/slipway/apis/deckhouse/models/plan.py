"""Plan of a Model or ClusterModel: its parsed and checked spec, and the resulting child objects. Pure.

A Job of the loader publishes the source as an artifact. The status then contains all data about the artifact, so the
controller does not query the registry.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping

import msgspec

from slipway.apis.deckhouse import names
from slipway.apis.deckhouse.catalogs import choice as catalog_choice
from slipway.apis.deckhouse.catalogs.choice import Entry, Waiting
from slipway.apis.deckhouse.delivery.users import users
from slipway.apis.deckhouse.models import uploads
from slipway.apis.deckhouse.settings import DeckhouseSettings, deckhouse
from slipway.apis.deckhouse.types import ClusterModelSpec, ModelSpec, Provider
from slipway.artifacts.documents.publication import Publication
from slipway.artifacts.locations import huggingface, model_pages
from slipway.kube.objects import JOB, SECRET, Key, Object, annotations_of, deleting, key
from slipway.kube.schemas.conditions import find
from slipway.kube.values.names import label_value
from slipway.kube.values.times import unix_time
from slipway.serving.contract.api import InvalidSpecError, Plan, World
from slipway.serving.pods.server import variables
from slipway.serving.pods.workload import child
from slipway.serving.wire import publishers, upload_notes
from slipway.serving.wire.depot_token import KEY_BYTES
from slipway.weights.jobs import publications, turns
from slipway.weights.jobs.loads import EVICTION_SECONDS, RETRIES, Run
from slipway.weights.jobs.publications import Record
from slipway.weights.jobs.turns import Queue
from slipway.weights.sources import catalogs
from slipway.weights.sources.credentials import Access, from_secret, hub_mirror, of_operator
from slipway.weights.sources.registry_access import of_registry

UNSUPPORTED, UPLOAD = "UnsupportedSource", "upload"
KINDS = (names.MODEL, names.CLUSTER_MODEL)
ARTIFACT_RESOLVED, METADATA_RESOLVED, READY = "ArtifactResolved", "MetadataResolved", "Ready"
NO_REGISTRY = "The controller has no registry. Install one with the role model_registry."
NO_KEY = "The controller does not have the depot's key. Install the depot with the role depot."


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The source of a model, or the reason why the source is not known yet."""

    provider: Provider
    source: str = ""
    """The source in the loader's format. Empty if it is not known yet."""
    waiting: str = ""
    """Message why the source is not known yet. Empty if it is known, or if the user has not uploaded it yet."""
    entry: Entry | None = None
    secret: str = ""
    """Name of the Secret with a token for the source. Empty if the source needs none."""


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """A model, which may be invalid, with its progress."""

    world: World
    settings: DeckhouseSettings
    origin: Origin | InvalidSpecError
    record: Record
    run: Run
    """State of the Job that publishes the model."""
    removal: Run
    """State of the Job that removes the model from the registry."""
    users: tuple[str, ...]
    key: bytes
    """Key that controller and depot share. Empty if the controller does not have it."""

    @property
    def model(self) -> Object:
        return self.world.resource

    @property
    def status(self) -> Object:
        return self.model.get("status") or {}

    @property
    def progress(self) -> str:
        """Progress in the model's status, such as ``17%``."""
        return str(self.status.get("progress") or "")

    @property
    def url(self) -> str:
        """``spec.source.url`` as written by the author. Empty if there is none."""
        source = self.model["spec"].get("source")
        url = source.get("url") if isinstance(source, dict) else None
        return url if isinstance(url, str) else ""

    @property
    def namespace(self) -> str:
        """Namespace of the model's Jobs and upload Secret."""
        return key(self.model).namespace or self.settings.namespace

    @property
    def published(self) -> str:
        """Digest of the model's artifact. Empty if there is none."""
        return str((self.status.get("artifact") or {}).get("digest") or "")

    @property
    def vanished(self) -> bool:
        """Whether the registry no longer has the artifact."""
        return bool(self.published) and annotations_of(self.model).get(names.VANISHED) == self.published

    @property
    def until(self) -> int:
        """Unix time at which the upload must be complete. 0 if the annotation is missing or invalid, or is later than
        any deadline that the controller sets."""
        text = annotations_of(self.model).get(names.UPLOAD, "")
        deadline = int(text) if text.isdecimal() and len(text) < 12 else 0
        return deadline if deadline <= self.world.now + self.settings.upload_seconds else 0

    @property
    def can_upload(self) -> bool:
        return bool(self.key and self.settings.upload_url)

    @property
    def publication(self) -> Publication | None:
        return publications.result(self.run)

    @property
    def target(self) -> str:
        return f"{self.settings.registry}/{names.repository(self.model)}"

    def valid(self) -> Origin:
        """Return the origin of the model. Raise InvalidSpecError with the reason if the spec is invalid."""
        if isinstance(self.origin, InvalidSpecError):
            raise self.origin
        return self.origin


def resolve(world: World) -> ModelView:
    model, settings = world.resource, deckhouse(world.settings)
    namespace = key(model).namespace or settings.namespace
    record = publications.parse_record(annotations_of(model).get(names.PUBLICATION, ""))
    run, removal = (
        publications.observe_run(world, Key(namespace, publications.name(model, what, attempt)))
        for what, attempt in ((publishers.PUBLISH, record.attempt), (publishers.UNPUBLISH, 0))
    )
    shared = world.file(settings.key_file)
    view = ModelView(
        world=world,
        settings=settings,
        origin=_origin(world),
        record=record,
        run=run,
        removal=removal,
        users=users(world) if deleting(model) else (),
        key=shared if len(shared) == KEY_BYTES else b"",
    )
    return msgspec.structs.replace(view, record=publications.update_record(record, run, world, view.progress))


def _origin(world: World) -> Origin | InvalidSpecError:
    kind = ModelSpec if key(world.resource).namespace else ClusterModelSpec
    try:
        spec: ClusterModelSpec = msgspec.convert(world.resource["spec"], kind)
    except msgspec.ValidationError as error:
        return InvalidSpecError(UNSUPPORTED, f"{error}.")
    source = spec.source
    if source.upload is not None:
        done = annotations_of(world.resource).get(names.UPLOADED)
        return Origin(provider="Upload", source="pieces://" if done else "")
    if source.catalog is not None:
        choice = catalog_choice.choice(world, source.catalog)
        if isinstance(choice, Entry):
            return Origin(provider="Catalog", source=f"catalog://{choice.address}@{choice.digest}", entry=choice)
        if isinstance(choice, Waiting):
            return Origin(provider="Catalog", waiting=choice.message)
        return InvalidSpecError(choice.reason, choice.message)
    secret = spec.source.auth_secret_ref if isinstance(spec, ModelSpec) else None
    try:
        page = model_pages.parse(source.url or "")
    except model_pages.UnsupportedError as error:
        return InvalidSpecError(UNSUPPORTED, str(error))
    if secret and page.provider != "HuggingFace":
        return InvalidSpecError(UNSUPPORTED, "authSecretRef is only for Hugging Face. Remove it.")
    return Origin(provider=page.provider, source=page.source, secret=secret.name if secret else "")


# Plan


def plan(view: ModelView) -> Plan:
    """Return the plan for publishing the model. Raise InvalidSpecError if the spec is invalid."""
    origin = view.valid()
    base = Plan(children=(), finalizer=names.FINALIZER, in_system_namespace=not key(view.model).namespace)
    if view.published or not view.settings.registry:
        return _annotated(base, {names.PUBLICATION: None, names.UPLOAD: None} if view.published else {})
    if not origin.source:
        return _with_session(view, base) if origin.provider == "Upload" and view.can_upload else base
    if view.publication is not None and has_begun(view):  # the Job stays until its result is in the status
        image = view.publication.image
        with_job = msgspec.structs.replace(base, children=(_publisher(view, origin),))
        return _annotated(with_job, {names.IMAGE_DIGEST: image} if image else {})
    if publications.is_time(view.record, view.run, view.world.now):
        return _annotated(base, {names.PUBLICATION: publications.next_attempt(view.record, view.progress).text()})
    if not has_begun(view) and not turns.may_begin(view.world, queue(view)):
        return base
    if not view.record.attempt:  # recorded before anything is created, so that it cannot be lost
        return _annotated(base, {names.PUBLICATION: publications.FIRST.text()})
    with_job = msgspec.structs.replace(base, children=(_publisher(view, origin),))
    return _annotated(with_job, {names.PUBLICATION: view.record.text()})


def has_begun(view: ModelView) -> bool:
    """Whether the publication has begun: the Job exists, and it is the model's turn or the controller has given up.
    False if the model must yield its turn. A Job alone proves nothing, because a tenant may have created it."""
    if view.run.job is None or turns.must_yield(view.world, queue(view)):
        return False
    return publications.has_given_up(view.record, view.run) or turns.has_turn(view.world, queue(view))


def _annotated(plan: Plan, annotations: Mapping[str, str | None]) -> Plan:
    patch: Object = {"metadata": {"annotations": dict(annotations)}} if annotations else {}
    return msgspec.structs.replace(plan, self_patch=patch)


def queue(view: ModelView) -> Queue:
    return Queue(
        kinds=KINDS,
        at_once=view.settings.publications_at_once,
        capacity=view.settings.capacity_limit,
        share=view.settings.namespace_share,
        copies=view.settings.copies,
        reserved=lambda model: upload_notes.reserved(model, view.key, view.world.now),
    )


def _publisher(view: ModelView, origin: Origin) -> Object:
    settings, common = view.settings, view.world.settings
    arguments = [publishers.PUBLISH, origin.source, view.target]
    if view.run.job is None:
        free = turns.room(view.world, queue(view))
        arguments += catalogs.loader_arguments(common.sources.blocked_networks) if origin.entry else []
        arguments += ["--image"] * settings.image
        arguments += [f"--capacity-free={free}"] if free is not None else []
        arguments += [f"--resume={view.record.resume}"] if view.record.resume else []
    mirror = variables({model_pages.OLLAMA_ENDPOINT: settings.ollama_endpoint} if settings.ollama_endpoint else {})
    token = from_secret(origin.secret, huggingface.candidates())
    source_access = Access(env=(*hub_mirror(common.hugging_face_endpoint), *mirror, *token))
    return publications.job(
        view.world, view.run, view.namespace, _label(view), arguments, _access(view) + source_access
    )


def _label(view: ModelView) -> dict[str, str]:
    return {names.MODEL_LABEL: label_value(key(view.model).name)}


def _access(view: ModelView) -> Access:
    return of_operator(view.world.settings.loader) + of_registry(view.settings.ca)


def _with_session(view: ModelView, plan: Plan) -> Plan:
    """Return the plan with the Secret for an upload, until the upload's deadline. Without a deadline, the plan sets one
    first."""
    if not view.until:
        return _annotated(plan, {names.UPLOAD: str(int(view.world.now) + view.settings.upload_seconds)})
    if view.world.now >= view.until:
        return plan
    session = uploads.session(view.key, view.settings.upload_url, view.model, view.until)
    data = {field: b64encode(text.encode()).decode() for field, text in session.items()}
    secret = child(SECRET, names.child(view.model, UPLOAD), view.namespace, {}, data=data)
    return msgspec.structs.replace(plan, write_only=(secret,))


# Deletion


def finalize(view: ModelView) -> Plan | None:
    """Return the plan for the next step of the deletion, or None if nothing remains to be done. The deletion waits
    until the model has no readers and its publishing Jobs are deleted, and then for a limited time for the registry."""
    staying = Plan(children=(), in_system_namespace=not key(view.model).namespace)
    children = view.world.children.items()
    jobs = (one for (kind, name), one in children if kind == JOB and name.namespace == view.namespace)
    if view.users or any(one is not view.removal.job for one in jobs):
        return staying
    ended = view.removal.complete_since is not None or is_late(view)
    if ended or not view.settings.registry or not _may_be_there(view):
        return None
    arguments = (publishers.UNPUBLISH, view.target)
    label, access = _label(view), _access(view)
    job = publications.job(view.world, view.removal, view.namespace, label, arguments, access, retries=RETRIES)
    again = view.removal.retried_at()
    outlived = again is not None and view.world.now >= again
    return staying if outlived else msgspec.structs.replace(staying, children=(job,))


def is_late(view: ModelView) -> bool:
    """Whether the model has been in deletion without readers for more than EVICTION_SECONDS. The deletion then waits
    for nothing else, because the registry may be gone permanently."""
    condition = find(view.model, ARTIFACT_RESOLVED) or {}
    if condition.get("status") == "True":
        return False
    since = max(view.model["metadata"]["deletionTimestamp"], condition.get("lastTransitionTime") or "")
    return view.world.now - unix_time(since) > EVICTION_SECONDS


def _may_be_there(view: ModelView) -> bool:
    """Whether the registry may contain data of the model."""
    annotated = any(map(annotations_of(view.model).get, (names.PUBLICATION, names.UPLOAD, names.UPLOADED)))
    has_job = view.run.job is not None or view.removal.job is not None
    return annotated or has_job or bool(view.published) or view.status.get("phase") == "Publishing"
