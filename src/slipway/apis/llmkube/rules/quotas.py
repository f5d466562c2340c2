"""GPU quotas: which services may have GPUs now, and which wait until others release some. Pure.

A service's own status, which only the controller can write, defines its share: the ``gpus`` that it has, the
``reserved`` GPUs that it will get, and the ``requested`` GPUs. Sums are computed from an index with an entry for each
binary digit of a share, so their cost does not depend on the number of services.

Several workers decide concurrently, so a service gets GPUs in three steps. First it reserves them in its status. Once
the reservation is visible in the cache and the sum still fits, the status grants them. Once the grant is visible, the
service starts. All workers share one cache, so one of two concurrent reservations arrives second, and the worker that
made it sees both. If both together exceed the quota, the service that is first in the queue keeps its reservation, and
waits until the others give up theirs. The queue is sorted by priority, then by age. A service does not overtake others
because it needs fewer GPUs.

A service is not in the queue if it can never get the GPUs that it requests, or if it cannot start for another reason.
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
"""Indexes of InferenceServices. ``TAKEN``: the binary digits of their share in each quota. ``WAITING``: the quotas that
they wait for. ``DENIED`` and ``RESERVED``: the quotas that they wait for without or with a reservation."""
DIGITS = 16
"""Maximum number of binary digits of the share of one service. 100 replicas with 8 GPUs each need ten."""
PRIORITY_TOO_LOW = "PriorityTooLow"
OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The field ``status.quota`` of a service."""

    names: tuple[str, ...] = ()
    """Names of the quotas, ``namespace/name``."""
    gpus: int = 0
    """Number of GPUs that the service has."""
    reserved: int = 0
    """Number of GPUs that the service will get, unless its reservation exceeds the quota."""
    requested: int = msgspec.field(default=0, name="wanted")
    """Number of GPUs that the service requests. Greater than ``gpus`` while it is in the queue."""

    @property
    def taken(self) -> int:
        return self.gpus + self.reserved


class Verdict(msgspec.Struct, frozen=True):
    """Whether a service may have the GPUs that it requests."""

    record: Record
    """The record to write to the status of the service."""
    waits: tuple[str, str] | None = None
    """Reason and message if the service must wait; None: it may start."""


class InvalidSelectorError(ValueError):
    """An error for a quota with an invalid selector."""


def record_of(service: Object) -> Record:
    """Return the record in a service's status. It is empty if the status has none, or if another writer made it
    invalid."""
    try:
        return msgspec.convert((service.get("status") or {}).get("quota") or {}, Record)
    except msgspec.ValidationError:
        return Record()


def by_taken(service: Object) -> Iterable[str]:
    """Return the values of a service in the index :data:`TAKEN`: each of its quotas with each binary digit of its
    share."""
    record = record_of(service)
    digits = [digit for digit in range(DIGITS) if record.taken >> digit & 1]
    return [_digit(name, digit) for name in record.names for digit in digits]


def by_waiting(service: Object) -> Iterable[str]:
    """Return the values of a service in the index :data:`WAITING`: the quotas that it waits for."""
    record = record_of(service)
    return () if deleting(service) or record.requested <= record.gpus else record.names


def by_denied(service: Object) -> Iterable[str]:
    """Return the values of a service in the index :data:`DENIED`: the quotas that it waits for without a
    reservation."""
    record = record_of(service)
    return () if deleting(service) or record.requested <= record.taken else record.names


def by_reserved(service: Object) -> Iterable[str]:
    """Return the values of a service in the index :data:`RESERVED`: the quotas that it waits for with a reservation."""
    record = record_of(service)
    return () if deleting(service) or record.requested <= record.gpus or not record.reserved else record.names


def by_namespace_ref(quota: Object) -> Iterable[str]:
    """Return the value of a quota in the index :data:`COVERS`. The result is empty if the quota neither names nor
    selects a namespace."""
    spec = quota["spec"]
    namespace = spec.get("namespaceRef", "")
    return (namespace,) if namespace or spec.get("selector") is not None else ()


def used(listers: Listers, quota: str) -> int:
    """Return the number of GPUs of a quota (``namespace/name``) that services have or have reserved."""
    return sum(listers.count(INFERENCE_SERVICE, TAKEN, _digit(quota, digit)) << digit for digit in range(DIGITS))


def covering(listers: Listers, namespace: str) -> list[Object]:
    """Return the quotas that cover a namespace, including quotas that are being deleted, sorted by namespace and
    name."""
    named = listers.list(KIND, COVERS, namespace) if namespace else ()
    by_labels = [one for one in listers.list(KIND, COVERS, "") if covers(listers, one, namespace)]
    return sorted([*named, *by_labels], key=key)


def covers(listers: Listers, quota: Object, namespace: str) -> bool:
    """Whether a quota that selects by labels covers a namespace. An invalid selector covers none."""
    resource = listers.get(NAMESPACES, Key("", namespace))
    try:
        return resource is not None and chosen(requirements(quota), labels(resource))
    except InvalidSelectorError:
        return False


def requirements(quota: Object) -> Sequence[Requirement]:
    """Return a quota's requirements for the labels of namespaces; empty if it has no selector. Raise
    InvalidSelectorError if its selector is invalid, or if it neither names nor selects a namespace."""
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
    """Return the number of GPUs that a service may use without a new decision. It is ``running``, the number of GPUs
    that its pods hold, if the service is older than the quota."""
    before = record_of(service)
    return before.gpus if before.names else running


def record_while_blocked(world: World, running: int) -> Record:
    """Return the record of a service that cannot start. The service keeps the GPUs that it may use, and reserves none.
    ``running`` is the number of GPUs that its pods hold. The record is empty if no quota covers the service."""
    names, gpus = _names(_quotas(world)), count_granted(world.resource, running)
    return Record(names=names, gpus=gpus, requested=gpus) if names else Record()


def judge(world: World, gpus: int, running: int, priority: int, *, starts: bool = False) -> Verdict:
    """Decide whether a service that could otherwise start may have ``gpus`` GPUs. ``running`` is the number of GPUs
    that its pods hold, ``priority`` is the value of its priority, and ``starts`` means that it starts its first pods
    without GPUs."""
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
    """Return the quotas that cover the namespace of the service and are not being deleted."""
    return [one for one in covering(world.listers, key(world.resource).namespace) if not deleting(one)]


def _names(quotas: Iterable[Object]) -> tuple[str, ...]:
    return tuple(str(key(one)) for one in quotas)


def _set_aside(record: Record) -> Verdict:
    text = f"{record.requested} GPUs are reserved for it. It starts once the reservation is recorded."
    return Verdict(msgspec.structs.replace(record, reserved=record.requested - record.gpus), ("QuotaReserved", text))


def _reservation_fits(listers: Listers, quota: Object, service: Object, priority: int) -> bool:
    """Whether the reservation of a service fits once the reservations behind it in the queue have been given up."""
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
    """Whether a quota has enough free GPUs for the request of a service, and for all requests before it in the
    queue."""
    name, own = str(key(quota)), place(service, priority)
    taken = before.taken if name in before.names else 0
    room = _limit(quota) - used(listers, name) + taken - record.requested
    if room < 0:
        return False
    ahead = (other for other, at in _queue(listers, name) if key(other) != key(service) and at < own)
    return sum(_missing(other) for other in ahead) <= room


def _queue(listers: Listers, quota: str, index: str = WAITING) -> list[tuple[Object, Place]]:
    """Return the services that wait for a quota, each with its place in the queue, unsorted. The index ``RESERVED``
    restricts them to services with a reservation."""
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
    """Return the services that may get GPUs of a quota now: as many from the head of its queue as fit. Services with a
    reservation are always included, because they may have to give it up. If the quota no longer exists, return all
    services that waited for it."""
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
    """Return the services that may get GPUs next, because another service released GPUs or changed its place in the
    queue."""
    before, now = _records(change)
    released = now.taken < before.taken or now.reserved < before.reserved or set(before.names) - set(now.names)
    names = dict.fromkeys((*before.names, *now.names)) if released or _is_queue_changed(change, before, now) else ()
    return [one for name in names for one in next_in(listers, name) if one != change.key]


def _records(change: Change) -> tuple[Record, Record]:
    """Return the records of a service before and after a change. A record is empty if the service did not or does not
    exist."""
    before, now = (record_of(state) if state else Record() for state in (change.old, change.new))
    return before, now


def _is_queue_changed(change: Change, before: Record, now: Record) -> bool:
    """Whether a service in the queue moved, left the queue, or now requests fewer GPUs."""
    old, new = change.old, change.new
    if old is None or not list(by_waiting(old)):
        return False
    if new is None or not list(by_waiting(new)) or now.requested < before.requested:
        return True
    return place(old, priority_of(old)) != place(new, priority_of(new))


def quotas_of(change: Change, _listers: Listers) -> Iterable[Key]:
    """Return the quotas whose use by a service has changed, or for which the service has begun or stopped waiting."""
    before, now = _records(change)
    if before == now:
        return ()
    return [Key(*name.split("/", 1)) for name in dict.fromkeys((*before.names, *now.names))]
