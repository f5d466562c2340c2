"""Nodes: which nodes should have weights, and the record of what each has. Pure.

For each model that a node has, or is about to get, the node has a label with a state, by which pods select it, and an
annotation with a record, which outlives the Jobs that load the weights. Both are written together.
"""

from __future__ import annotations

import hashlib
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec

from slipway.decoding import DecodingError, decode_json
from slipway.kube.objects import NODE, Object
from slipway.serving.contract.api import MetadataPatch, Reference

State = Literal["Ready", "Updating", "Failed"]
RECORDS = "weights.slipway.inference/"
"""Prefix of node annotations with records; the rest of the name is that of the label. Also prefix of the labels that
assign folders to a model; the rest is a digest, and the value is the rest of the model's own label."""
RECORD_BYTES = 8192
MESSAGE_LENGTH = 300
"""Maximum length of a message in bytes; JSON at most doubles it."""
MOST_FORMER = 8
"""Maximum former paths in a record."""
MOST_READ = 2
"""Maximum paths of folders with other users' files in a record. Even with the longest paths, a record is shorter than
RECORD_BYTES."""
INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
NAME_FIELD = "metadata.name"
COMPARED: Mapping[str, Callable[[int, int], bool]] = {"Gt": operator.gt, "Lt": operator.lt}


# The cached part of nodes


class Node(msgspec.Struct, frozen=True):
    """The relevant fields of a node."""

    name: str
    uid: str
    boot: str
    """Changes with each boot of the machine, which may have emptied its disks."""
    ready: bool
    labels: Mapping[str, str]
    records: Mapping[str, str]
    """Annotations with the prefix :data:`RECORDS`."""

    @property
    def reference(self) -> Reference:
        return Reference(NODE, "", self.name)


def trim_node(node: Object) -> Object:
    """Returns a node with only the fields for :func:`parse_node`, because thousands of nodes are kept in memory."""
    metadata, status = node["metadata"], node.get("status") or {}
    metadata_left = {field: metadata.get(field, "") for field in ("name", "uid", "resourceVersion")}
    annotations = metadata.get("annotations") or {}
    metadata_left["annotations"] = {name: text for name, text in annotations.items() if name.startswith(RECORDS)}
    metadata_left["labels"] = metadata.get("labels") or {}
    conditions = {one.get("type"): one.get("status") for one in status.get("conditions") or ()}
    boot = (status.get("nodeInfo") or {}).get("bootID", "")
    return {"kind": NODE.kind, "metadata": metadata_left, "boot": boot, "ready": conditions.get("Ready") == "True"}


def parse_node(node: Object) -> Node:
    """Parses a node that :func:`trim_node` returned."""
    metadata = node["metadata"]
    return Node(
        name=metadata["name"],
        uid=metadata["uid"],
        boot=node["boot"],
        ready=node["ready"],
        labels=metadata["labels"],
        records=metadata["annotations"],
    )


class Difference(msgspec.Struct, frozen=True):
    """The significance of a node's change for models."""

    concerns_all: bool
    """Whether any model may be affected for which the node was or is eligible."""
    marks: frozenset[str] = frozenset()
    """Names of changed labels and records, without their prefixes."""


def difference(old: Object | None, new: Object | None, prefix: str) -> Difference:
    """Returns the difference between two states of a node from :func:`trim_node`; empty after a heartbeat. ``prefix``:
    of the labels with models' states, which do not affect eligibility."""
    if old is None or new is None:
        return Difference(concerns_all=True)
    one, other = parse_node(old), parse_node(new)
    if one == other:
        return Difference(concerns_all=False)
    state_labels = [
        {name: value for name, value in node.labels.items() if name.startswith((prefix, RECORDS))}
        for node in (one, other)
    ]
    placed = [
        {name: value for name, value in node.labels.items() if name not in state_labels[0] | state_labels[1]}
        for node in (one, other)
    ]
    fixed = [(node.uid, node.boot, node.ready) for node in (one, other)]
    changed = state_labels[0].items() ^ state_labels[1].items()
    marks = {value if name.startswith(RECORDS) else name.removeprefix(prefix) for name, value in changed}
    marks |= {name.removeprefix(RECORDS) for name, _text in one.records.items() ^ other.records.items()}
    return Difference(concerns_all=placed[0] != placed[1] or fixed[0] != fixed[1], marks=frozenset(marks))


# Eligible nodes


class Requirement(msgspec.Struct, frozen=True):
    """A condition on a node's label or name."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def fault(self, *, of_field: bool) -> str:
        """Returns the problem with the requirement; empty: none."""
        if of_field and (self.key != NAME_FIELD or self.operator not in ("In", "NotIn") or len(self.values) != 1):
            return f"matchFields takes {NAME_FIELD} with In or NotIn and one value"
        if self.operator in ("In", "NotIn"):
            return "" if self.values else f"{self.operator} of {self.key} needs values"
        if self.operator in ("Exists", "DoesNotExist"):
            return f"{self.operator} of {self.key} takes no values" if self.values else ""
        if self.operator in COMPARED:
            whole = len(self.values) == 1 and INTEGER.fullmatch(self.values[0])
            return "" if whole else f"{self.operator} of {self.key} needs one whole number"
        return f"the operator {self.operator} of {self.key} is not one of In, NotIn, Exists, DoesNotExist, Gt and Lt"

    def holds(self, values: Mapping[str, str]) -> bool:
        """Whether these labels or fields meet the condition. As in the scheduler, NotIn also holds if the key is
        missing."""
        value = values.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        number = value is not None and INTEGER.fullmatch(value)
        return bool(number) and COMPARED[self.operator](int(value or 0), int(self.values[0]))


class Term(msgspec.Struct, frozen=True, rename="camel"):
    """Conditions that must all hold."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()

    def holds(self, node: Node) -> bool:
        """Whether the node meets all conditions. A term without conditions matches no node."""
        nonempty = bool(self.match_expressions or self.match_fields)
        by_labels = all(one.holds(node.labels) for one in self.match_expressions)
        return nonempty and by_labels and all(one.holds({NAME_FIELD: node.name}) for one in self.match_fields)


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    node_selector_terms: tuple[Term, ...]


class _Affinity(msgspec.Struct, frozen=True, rename="camel"):
    required_during_scheduling_ignored_during_execution: _Selector | None = None


class Placement(msgspec.Struct, frozen=True):
    """The nodes that should have weights."""

    labels: Mapping[str, str] = {}
    terms: tuple[Term, ...] | None = None
    """Terms, one of which must hold; None: no restriction."""

    def admits(self, node: Node) -> bool:
        labelled = all(node.labels.get(name) == value for name, value in self.labels.items())
        return labelled and (self.terms is None or any(term.holds(node) for term in self.terms))


def placement(node_selector: Mapping[str, str], node_affinity: Object | None) -> Placement:
    """Returns the placement for a nodeSelector and a nodeAffinity of a pod. Preferences are ignored. Raises ValueError
    for values that are not valid in a pod."""
    selector = msgspec.convert(node_affinity or {}, _Affinity).required_during_scheduling_ignored_during_execution
    terms = selector.node_selector_terms if selector else None
    for term in terms or ():
        faults = [one.fault(of_field=False) for one in term.match_expressions]
        faults += [one.fault(of_field=True) for one in term.match_fields]
        if fault := next(filter(None, faults), ""):
            raise ValueError(fault)
    return Placement(node_selector, terms)


def pinned(node: str) -> Object:
    """Returns the affinity of a pod that runs only on this node."""
    field = {"key": NAME_FIELD, "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def node_of(job: Object) -> str:
    """Returns the node to which one of our Jobs is pinned; empty: none."""
    try:
        pod = job["spec"]["template"]["spec"]
        selector = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        node_name: str = selector["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
    except (KeyError, IndexError, TypeError):
        return ""
    return node_name


# Records of a node


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A node's record of one model."""

    state: State
    of: str
    """Uid of the model."""
    digest: str = msgspec.field(default="", name="wanted")
    """Digest of the requested weights, if they are there."""
    path: str = ""
    former: tuple[str, ...] = ()
    """Further folders that it may have left there."""
    reads: str = ""
    """A folder with files of other users."""
    read_before: tuple[str, ...] = ()
    """Further folders with files of other users that pods may still read."""
    boot: str = ""
    """Boot ID of the node when it was last checked."""
    size: int = 0
    revision: str = ""
    """The revision of the weights for people, such as a commit."""
    seal: str = ""
    """Seal by which the loader recognizes the folder that it filled for this model."""
    message: str = ""
    """Reason of the state Failed."""

    def has(self, digest: str, node: Node) -> bool:
        """Whether the node has the weights and has not rebooted since they were checked."""
        return self.state == "Ready" and self.digest == digest and self.boot == node.boot

    def seal_of(self, path: str) -> str:
        """Returns the seal of this folder; for a folder from a version without seals, its size and revision."""
        if self.path != path or self.seal:
            return self.seal if self.path == path else ""
        return f"{self.size}@{self.revision}" if self.state == "Ready" else ""

    @property
    def paths(self) -> tuple[str, ...]:
        """All folders that may exist, its own one last."""
        return tuple(dict.fromkeys((*self.former, *((self.path,) if self.path else ()))))

    @property
    def readable_paths(self) -> tuple[str, ...]:
        """All folders that pods may read as parts of the model."""
        return tuple(dict.fromkeys((*self.paths, *self.read_before, *((self.reads,) if self.reads else ()))))

    def paths_still_read(self, path: str, still: Callable[[str], bool]) -> tuple[str, ...]:
        """Returns ``read_before`` for the next record, which reads another path. ``still``: whether pods still read a
        folder."""
        before = dict.fromkeys((*self.read_before, *((self.reads,) if self.reads else ())))
        return tuple(one for one in before if one != path and still(one))[-MOST_READ:]

    def former_paths(self, path: str) -> tuple[str, ...]:
        """Returns ``former`` for the next record, which has another path."""
        return tuple(one for one in self.paths if one != path)[-MOST_FORMER:]


def find_record(node: Node, mark: str, of: str) -> Record | None:
    """Returns a node's record of the model with this uid; None if there is none. ``mark``: name of its label without
    the prefix."""
    record = decode_record(node.records.get(f"{RECORDS}{mark}", ""))
    return record if record is not None and record.of == of else None


def decode_record(text: str) -> Record | None:
    """Decodes a record; None if it is missing or invalid."""
    try:
        return decode_json(text, Record, most=RECORD_BYTES) if text else None
    except DecodingError:
        return None


def build_patch(
    node: Node, label: str, record: Record | None, *, selectable: bool = True, mountable: bool = True
) -> MetadataPatch:
    """Returns the patch that sets or removes a node's record of a model. ``selectable``: whether pods may select the
    node by it; ``mountable``: whether they may mount its folders there."""
    annotation = f"{RECORDS}{mark(label)}"
    before = decode_record(node.records.get(annotation, ""))
    kept_labels: dict[str, str | None] = dict.fromkeys(_previous_folder_labels(node, mark(label), before))
    if record is None:
        return MetadataPatch(node.reference, {annotation: None}, {label: None, **kept_labels})
    note = msgspec.structs.replace(record, message=_shorten(record.message))
    text = msgspec.json.encode(note).decode()
    kept_labels |= {folder_label(record.of, one): mark(label) for one in record.readable_paths} if mountable else {}
    state = record.state if selectable else None
    return MetadataPatch(node.reference, {annotation: text}, {label: state, **kept_labels})


def _previous_folder_labels(node: Node, mark: str, record: Record | None) -> Iterable[str]:
    """Returns the labels of a model's folders on a node: those in its record or, if that was deleted, all with the
    model's mark."""
    if record is not None:
        return [folder_label(record.of, one) for one in record.readable_paths]
    return [name for name, value in node.labels.items() if name.startswith(RECORDS) and value == mark]


def folder_label(of: str, path: str) -> str:
    """Returns the label that assigns a folder on a node to the model with the uid ``of``."""
    identity = f"{of}\0{path}"
    return f"{RECORDS}{hashlib.sha256(identity.encode()).hexdigest()[:32]}"


def _shorten(message: str) -> str:
    plain = "".join(letter if letter.isprintable() else " " for letter in message[:MESSAGE_LENGTH])
    return plain.encode(errors="ignore")[:MESSAGE_LENGTH].decode(errors="ignore")


def mark(label: str) -> str:
    """Returns a label's name without its prefix, which is also the rest of the record's name."""
    return label.rpartition("/")[2]
