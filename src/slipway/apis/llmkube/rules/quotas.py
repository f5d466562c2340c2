"""Quotas: which services may have GPUs now, and which wait until others release some. Pure.

A service's share is defined by its own status, which only the controller can write: ``gpus`` that are granted,
``reserved`` ones that it will get, and ``requested`` ones. Sums are computed from an index with an entry for each
binary digit, so their cost does not depend on the number of services.

Several workers decide concurrently, each with its view of the caches. So a service first reserves GPUs in its status.
Once the reservation is visible in the cache and the sum still fits, they are granted in the status, and once that is
visible, the service starts. All workers share one cache, in which one of two reservations comes second: the service
that made it sees both. If there are too many, the first in the queue keeps its reservation and waits for the others to
give theirs up. The queue is sorted by priority, then by age, and services that need fewer GPUs do not overtake others.

A service that can never get what it requests, or cannot start for another reason, is not in the queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from slipway.apis.llmkube.rules.scheduling import VALUES, Place, place, priority_of
from slipway.apis.llmkube.types.quota import KIND, Selector
from slipway.apis.llmkube.types.service import KIND as INFERENCE_SERVICE
from slipway.kube.caches.store import Change
from slipway.kube.objects import NAMESPACE, Key, Object, deleting, key, labels, metadata_of
from slipway.serving.contract.api import Listers, World
from slipway.serving.routing.selector import KEY, VALUE, Requirement, chosen

NAMESPACES = metadata_of(NAMESPACE)
COVERS = "covers"
"""Index of GPUQuotas: the namespace that a quota covers; empty for quotas that select by labels."""
TAKEN, WAITING, DENIED, RESERVED = "taken", "waiting", "denied", "reserved"
"""Indexes of InferenceServices: the binary digits of their usage in each quota; the quotas that have not granted
everything; those among them without a reservation for the service; and those with one."""
DIGITS = 16
"""Number of binary digits for the usage of one service: 8 GPUs of 100 replicas need ten."""
PRIORITY_TOO_LOW = "PriorityTooLow"
OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The field ``status.quota`` of a service."""

    names: tuple[str, ...] = ()
    """Names of the quotas, ``namespace/name``."""
    gpus: int = 0
    """GPUs that it has."""
    reserved: int = 0
    """GPUs that it will get, unless there turn out to be too few."""
    requested: int = msgspec.field(default=0, name="wanted")
    """GPUs that it requests; more than ``gpus`` while it is in the queue."""

    @property
    def taken(self) -> int:
        return self.gpus + self.reserved


class Verdict(msgspec.Struct, frozen=True):
    """Whether a service may have the GPUs that it requests."""

    record: Record
    """The record to write to its status."""
    waits: tuple[str, str] | None = None
    """Reason and message, if it must wait."""


class InvalidSelectorError(ValueError):
    """A quota's selector is not valid."""


def record_of(service: Object) -> Record:
    """Returns the record in a service's status; an empty one if it is missing or was not written by the controller."""
    try:
        return msgspec.convert((service.get("status") or {}).get("quota") or {}, Record)
    except msgspec.ValidationError:
        return Record()


def by_taken(service: Object) -> Iterable[str]:
    """Index function for :data:`TAKEN`."""
    record = record_of(service)
    digits = [digit for digit in range(DIGITS) if record.taken >> digit & 1]
    return [_digit(name, digit) for name in record.names for digit in digits]


def by_waiting(service: Object) -> Iterable[str]:
    """Index function for :data:`WAITING`."""
    record = record_of(service)
    return () if deleting(service) or record.requested <= record.gpus else record.names


def by_denied(service: Object) -> Iterable[str]:
    """Index function for :data:`DENIED`."""
    record = record_of(service)
    return () if deleting(service) or record.requested <= record.taken else record.names


def by_reserved(service: Object) -> Iterable[str]:
    """Index function for :data:`RESERVED`."""
    record = record_of(service)
    return () if deleting(service) or record.requested <= record.gpus or not record.reserved else record.names


def by_namespace_ref(quota: Object) -> Iterable[str]:
    """Index function for :data:`COVERS`. A quota that neither names nor selects a namespace covers none."""
    spec = quota["spec"]
    namespace = spec.get("namespaceRef", "")
    return (namespace,) if namespace or spec.get("selector") is not None else ()


def used(listers: Listers, quota: str) -> int:
    """Returns the number of GPUs of a quota (``namespace/name``) that services have or are about to get."""
    return sum(listers.count(INFERENCE_SERVICE, TAKEN, _digit(quota, digit)) << digit for digit in range(DIGITS))


def covering(listers: Listers, namespace: str) -> list[Object]:
    """Returns the quotas that cover a namespace, sorted by name."""
    named = listers.list(KIND, COVERS, namespace) if namespace else ()
    by_labels = [one for one in listers.list(KIND, COVERS, "") if covers(listers, one, namespace)]
    return sorted([*named, *by_labels], key=key)


def covers(listers: Listers, quota: Object, namespace: str) -> bool:
    """Whether a quota that selects by labels covers a namespace."""
    resource = listers.get(NAMESPACES, Key("", namespace))
    try:
        return resource is not None and chosen(requirements(quota), labels(resource))
    except InvalidSelectorError:
        return False


def requirements(quota: Object) -> Sequence[Requirement]:
    """Returns the quota's requirements for namespaces. Raises InvalidSelectorError."""
    if not list(by_namespace_ref(quota)):
        raise InvalidSelectorError("it selects no namespace")
    try:
        selector = msgspec.convert(quota["spec"].get("selector") or {}, Selector)
    except msgspec.ValidationError as error:
        raise InvalidSelectorError(str(error)) from error
    named = [Requirement(name, "in", (value,)) for name, value in selector.match_labels.items()]
    for one in selector.match_expressions:
        if one.operator not in OPERATORS:
            raise InvalidSelectorError(f"{one.operator[:64]!r} is not one of {', '.join(OPERATORS)}")
        if bool(one.values) != (one.operator in ("In", "NotIn")):
            raise InvalidSelectorError(f"{one.operator} {'takes no' if one.values else 'needs'} values")
        named.append(Requirement(one.key, OPERATORS[one.operator], one.values))
    for requirement in named:
        if not KEY.fullmatch(requirement.key) or not all(VALUE.fullmatch(one) for one in requirement.values):
            raise InvalidSelectorError(f"{requirement.key[:64]!r} is not a valid label, or has an invalid value")
    return named


def count_granted(service: Object, running: int) -> int:
    """Returns the GPUs that a service may use without a new decision. ``running``: the GPUs that its pods hold, which
    count if the service is older than the quota."""
    before = record_of(service)
    return before.gpus if before.names else running


def record_while_blocked(world: World, running: int) -> Record:
    """Returns the record of a service that cannot start: it keeps its GPUs, and none are reserved. ``running``: see
    :func:`count_granted`."""
    names, gpus = _names(_quotas(world)), count_granted(world.resource, running)
    return Record(names=names, gpus=gpus, requested=gpus) if names else Record()


def judge(world: World, gpus: int, running: int, priority: int, *, starts: bool = False) -> Verdict:
    """Decides whether a service, which is otherwise able to start, may have ``gpus``. ``running``: see
    :func:`count_granted`; ``priority``: as a number; ``starts``: whether it gets its first pods, if it needs no
    GPUs."""
    service, listers = world.resource, world.listers
    covered = _quotas(world)
    if not covered:
        return Verdict(Record())
    before, has = record_of(service), count_granted(service, running)
    record = Record(names=_names(covered), gpus=min(has, gpus), requested=gpus)
    if gpus <= has:
        return Verdict(record, _too_low(covered, priority) if starts else None)
    if out := _too_low(covered, priority) or _too_small(covered, gpus):
        return Verdict(msgspec.structs.replace(record, requested=record.gpus), out)
    if before.reserved and before.names == record.names and before.taken == gpus:
        over = [one for one in covered if used(listers, str(key(one))) > _limit(one)]
        exceeded = next((one for one in over if not _reservation_fits(listers, one, service, priority)), None)
        if exceeded:
            return Verdict(record, _exceeded(listers, exceeded, gpus))
        # Start only after the reservation is recorded, because others may appear in the cache until then.
        return _set_aside(record) if over else _set_aside(msgspec.structs.replace(record, gpus=gpus))
    full = next((one for one in covered if not _has_room(listers, one, service, record, before, priority)), None)
    if full:
        return Verdict(record, _exceeded(listers, full, gpus))
    return _set_aside(record)


def _quotas(world: World) -> list[Object]:
    """Returns the quotas that cover the service."""
    return [one for one in covering(world.listers, key(world.resource).namespace) if not deleting(one)]


def _names(quotas: Iterable[Object]) -> tuple[str, ...]:
    return tuple(str(key(one)) for one in quotas)


def _set_aside(record: Record) -> Verdict:
    text = f"{record.requested} GPUs are reserved for it. It starts once the reservation is recorded."
    return Verdict(msgspec.structs.replace(record, reserved=record.requested - record.gpus), ("QuotaReserved", text))


def _reservation_fits(listers: Listers, quota: Object, service: Object, priority: int) -> bool:
    """Whether a reservation fits once those behind it in the queue have been given up."""
    name, own = str(key(quota)), place(service, priority)
    behind = (other for other, at in _queue(listers, name, RESERVED) if key(other) != key(service) and at > own)
    return used(listers, name) - sum(record_of(other).reserved for other in behind) <= _limit(quota)


def _too_low(quotas: Iterable[Object], priority: int) -> tuple[str, str] | None:
    for one in quotas:
        least = one["spec"].get("minPriority")
        if least and priority < VALUES.get(least, 0):
            text = f"The GPUQuota {key(one)} requires the priority {least} or a higher one."
            return PRIORITY_TOO_LOW, text
    return None


def _too_small(quotas: Iterable[Object], gpus: int) -> tuple[str, str] | None:
    for one in quotas:
        if gpus > _limit(one):
            text = f"The GPUQuota {key(one)} has {_limit(one)} GPUs, and all replicas of the service need {gpus}"
            return "QuotaTooSmall", f"{text}. Request fewer, or ask the operator to raise the quota."
    return None


def _has_room(listers: Listers, quota: Object, service: Object, record: Record, before: Record, priority: int) -> bool:
    """Whether there is room for a service's further request, and for all requests before it in the queue."""
    name, own = str(key(quota)), place(service, priority)
    taken = before.taken if name in before.names else 0
    room = _limit(quota) - used(listers, name) + taken - record.requested
    if room < 0:
        return False
    ahead = (other for other, at in _queue(listers, name) if key(other) != key(service) and at < own)
    return sum(_missing(other) for other in ahead) <= room


def _queue(listers: Listers, quota: str, index: str = WAITING) -> list[tuple[Object, Place]]:
    """Returns the services that wait for a quota."""
    return [(one, place(one, priority_of(one))) for one in listers.list(INFERENCE_SERVICE, index, quota)]


def _missing(service: Object) -> int:
    record = record_of(service)
    return record.requested - record.taken


def _exceeded(listers: Listers, quota: Object, gpus: int) -> tuple[str, str]:
    usage = used(listers, str(key(quota)))
    has = f"The GPUQuota {key(quota)} has {_limit(quota)} GPUs, of which {usage} are in use"
    text = f"{has}. The service needs {gpus}. It starts when enough are free for it and the services before it."
    return "QuotaExceeded", text


def _limit(quota: Object) -> int:
    limit: int = quota["spec"]["gpuCount"]
    return limit


def _digit(quota: str, digit: int) -> str:
    return f"{quota}:{digit}"


# Services to check again


def next_in(listers: Listers, quota: str) -> list[Key]:
    """Returns the services whose turn may have come: as many from the head of the quota's queue as fit. Services with a
    reservation are always included, because they may have to give it up."""
    namespace, _slash, name = quota.partition("/")
    gpu_quota = listers.get(KIND, Key(namespace, name))
    if gpu_quota is None:
        return [key(service) for service, _place in _queue(listers, quota)]
    room = _limit(gpu_quota) - used(listers, quota)
    turns = []
    for service, _place in sorted(_queue(listers, quota, WAITING if room > 0 else RESERVED), key=lambda one: one[1]):
        room -= _missing(service)
        if room >= 0 or record_of(service).reserved:
            turns.append(key(service))
    return turns


def enqueue_next(change: Change, listers: Listers) -> Iterable[Key]:
    """Enqueues the services that may be next, because another service released GPUs or changed its place in the
    queue."""
    before, now = _records(change)
    released = now.taken < before.taken or now.reserved < before.reserved or set(before.names) - set(now.names)
    names = dict.fromkeys((*before.names, *now.names)) if released or _is_queue_changed(change, before, now) else ()
    return [one for name in names for one in next_in(listers, name) if one != change.key]


def _records(change: Change) -> tuple[Record, Record]:
    """Returns the records of a service before and after; empty if there is none."""
    before, now = (record_of(state) if state else Record() for state in (change.old, change.new))
    return before, now


def _is_queue_changed(change: Change, before: Record, now: Record) -> bool:
    """Whether a service moved in the queue, requests less, or left it."""
    old, new = change.old, change.new
    if old is None or not list(by_waiting(old)):
        return False
    if new is None or not list(by_waiting(new)) or now.requested < before.requested:
        return True
    return place(old, priority_of(old)) != place(new, priority_of(new))


def quotas_of(change: Change, _listers: Listers) -> Iterable[Key]:
    """Returns the quotas whose usage by a service has changed, or for which it has begun or stopped waiting."""
    before, now = _records(change)
    if before == now:
        return ()
    return [Key(*name.split("/", 1)) for name in dict.fromkeys((*before.names, *now.names))]
