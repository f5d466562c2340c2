"""Nodes: which nodes should have weights, and a record of the weights that each node has. Pure.

A node has a label and an annotation for each model whose weights it has or is about to get. The label contains the
state, so that pods can select the node. The annotation contains a record that outlives the Jobs that load the weights.
A single patch writes both.
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
"""Prefix of the names of two kinds of metadata of a node. In an annotation, the rest of the name is the same as in the
model's label, and the value is a record. In a label, the rest of the name is a digest, and the value assigns a
directory to a model: it is the name of the model's label without its prefix."""
RECORD_BYTES = 8192
MESSAGE_LENGTH = 300
"""Maximum length of a message in bytes. JSON at most doubles it."""
MOST_FORMER = 8
"""Maximum number of former paths in a record."""
MOST_READ = 2
"""Maximum number of paths in a record that lead to directories with other users' files. Even with the longest paths, a
record is smaller than ``RECORD_BYTES``."""
INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
NAME_FIELD = "metadata.name"
COMPARED: Mapping[str, Callable[[int, int], bool]] = {"Gt": operator.gt, "Lt": operator.lt}


# The cached part of nodes


class Node(msgspec.Struct, frozen=True):
    """The fields of a node that are relevant for weights."""

    name: str
    uid: str
    boot: str
    """ID that changes with each boot of the machine, because a reboot may empty its disks."""
    ready: bool
    labels: Mapping[str, str]
    records: Mapping[str, str]
    """Annotations whose names begin with ``RECORDS``."""

    @property
    def reference(self) -> Reference:
        return Reference(NODE, "", self.name)


def trim_node(node: Object) -> Object:
    """Return a node with only the fields that ``parse_node`` reads, because the controller keeps thousands of nodes in
    memory."""
    metadata, status = node["metadata"], node.get("status") or {}
    metadata_left = {field: metadata.get(field, "") for field in ("name", "uid", "resourceVersion")}
    annotations = metadata.get("annotations") or {}
    metadata_left["annotations"] = {name: text for name, text in annotations.items() if name.startswith(RECORDS)}
    metadata_left["labels"] = metadata.get("labels") or {}
    conditions = {one.get("type"): one.get("status") for one in status.get("conditions") or ()}
    boot = (status.get("nodeInfo") or {}).get("bootID", "")
    return {"kind": NODE.kind, "metadata": metadata_left, "boot": boot, "ready": conditions.get("Ready") == "True"}


def parse_node(node: Object) -> Node:
    """Parse a node from ``trim_node``."""
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
    """The effect that a change of a node has on models."""

    concerns_all: bool
    """Whether the change may affect every model for which the node is or was eligible."""
    marks: frozenset[str] = frozenset()
    """Names, without their prefix, of the labels of the models whose label, record or directories changed."""


def difference(old: Object | None, new: Object | None, prefix: str) -> Difference:
    """Return the effect of a change between two states of a node from ``trim_node``; None: the node does not exist. A
    heartbeat has no effect. ``prefix`` is the prefix of the labels that contain models' states, which do not affect
    eligibility."""
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
        """Return the problem with the requirement, or an empty string if it is valid. ``of_field``: whether the
        requirement is about a field of the node instead of a label."""
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
        """Whether labels or fields meet the condition, which must be valid. As in the scheduler, NotIn also holds if
        the key is missing."""
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
    """A set of conditions, all of which a node must meet."""

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
    """Labels, with their values, that a node must have."""
    terms: tuple[Term, ...] | None = None
    """Terms of which a node must meet at least one; None: all nodes are allowed."""

    def admits(self, node: Node) -> bool:
        labelled = all(node.labels.get(name) == value for name, value in self.labels.items())
        return labelled and (self.terms is None or any(term.holds(node) for term in self.terms))


def placement(node_selector: Mapping[str, str], node_affinity: Object | None) -> Placement:
    """Return the placement that a pod's nodeSelector and nodeAffinity require. Preferences are ignored. Raise
    ValueError for values that are not valid in a pod."""
    selector = msgspec.convert(node_affinity or {}, _Affinity).required_during_scheduling_ignored_during_execution
    terms = selector.node_selector_terms if selector else None
    for term in terms or ():
        faults = [one.fault(of_field=False) for one in term.match_expressions]
        faults += [one.fault(of_field=True) for one in term.match_fields]
        if fault := next(filter(None, faults), ""):
            raise ValueError(fault)
    return Placement(node_selector, terms)


def pinned(node: str) -> Object:
    """Return the affinity of a pod that can run only on this node."""
    field = {"key": NAME_FIELD, "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def node_of(job: Object) -> str:
    """Return the name of the node to which ``pinned`` has bound a Job, or an empty string if there is none."""
    try:
        pod = job["spec"]["template"]["spec"]
        selector = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        node_name: str = selector["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
    except (KeyError, IndexError, TypeError):
        return ""
    return node_name


# Records of a node


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The record on a node about the weights of one model."""

    state: State
    of: str
    """Uid of the model."""
    digest: str = msgspec.field(default="", name="wanted")
    """Digest of the weights to which the state refers: those that the node has, is loading or could not load."""
    path: str = ""
    former: tuple[str, ...] = ()
    """Former directories that may still have files of the model on the node."""
    reads: str = ""
    """Directory with files of other users that the model reads; empty: there is none."""
    read_before: tuple[str, ...] = ()
    """Former directories with files of other users that pods may still read."""
    boot: str = ""
    """Boot ID of the node at the time of the last check."""
    size: int = 0
    revision: str = ""
    """Revision of the weights for people, such as a commit."""
    seal: str = ""
    """Seal by which the loader recognizes the directory that it filled for this model."""
    message: str = ""
    """Reason for the state Failed."""

    def has(self, digest: str, node: Node) -> bool:
        """Whether the state is Ready for the weights with this digest, and the node has not rebooted since they were
        checked."""
        return self.state == "Ready" and self.digest == digest and self.boot == node.boot

    def seal_of(self, path: str) -> str:
        """Return the seal of the directory ``path``, or an empty string if it is unknown. For a record without a seal,
        from an earlier version, return ``SIZE@REVISION``."""
        if self.path != path or self.seal:
            return self.seal if self.path == path else ""
        return f"{self.size}@{self.revision}" if self.state == "Ready" else ""

    @property
    def paths(self) -> tuple[str, ...]:
        """All directories that may have files of the model, the current one last."""
        return tuple(dict.fromkeys((*self.former, *((self.path,) if self.path else ()))))

    @property
    def readable_paths(self) -> tuple[str, ...]:
        """All directories that pods may read as parts of the model."""
        return tuple(dict.fromkeys((*self.paths, *self.read_before, *((self.reads,) if self.reads else ()))))

    def paths_still_read(self, path: str, still: Callable[[str], bool]) -> tuple[str, ...]:
        """Return ``read_before`` for the next record, whose ``reads`` is ``path``, at most ``MOST_READ`` directories.
        ``still`` returns whether pods still read a directory."""
        before = dict.fromkeys((*self.read_before, *((self.reads,) if self.reads else ())))
        return tuple(one for one in before if one != path and still(one))[-MOST_READ:]

    def former_paths(self, path: str) -> tuple[str, ...]:
        """Return ``former`` for the next record, whose path is ``path``, at most ``MOST_FORMER`` directories."""
        return tuple(one for one in self.paths if one != path)[-MOST_FORMER:]


def find_record(node: Node, mark: str, of: str) -> Record | None:
    """Return a node's record of the model with the uid ``of``, or None if there is none. ``mark`` is the name of the
    model's label without its prefix."""
    record = decode_record(node.records.get(f"{RECORDS}{mark}", ""))
    return record if record is not None and record.of == of else None


def decode_record(text: str) -> Record | None:
    """Decode a record. Return None if the text is empty or invalid."""
    try:
        return decode_json(text, Record, most=RECORD_BYTES) if text else None
    except DecodingError:
        return None


def build_patch(
    node: Node, label: str, record: Record | None, *, selectable: bool = True, mountable: bool = True
) -> MetadataPatch:
    """Return the patch that sets a node's record of a model, or removes it if ``record`` is None. ``label`` is the name
    of the model's label. ``selectable``: whether pods may select the node by the label. ``mountable``: whether pods may
    mount the directories in the record."""
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
    """Return the labels that assign directories on a node to a model: those for the directories in its record or,
    without a record, all labels whose value is the model's mark."""
    if record is not None:
        return [folder_label(record.of, one) for one in record.readable_paths]
    return [name for name, value in node.labels.items() if name.startswith(RECORDS) and value == mark]


def folder_label(of: str, path: str) -> str:
    """Return the name of the label that assigns a directory on a node to the model with the uid ``of``."""
    identity = f"{of}\0{path}"
    return f"{RECORDS}{hashlib.sha256(identity.encode()).hexdigest()[:32]}"


def _shorten(message: str) -> str:
    plain = "".join(letter if letter.isprintable() else " " for letter in message[:MESSAGE_LENGTH])
    return plain.encode(errors="ignore")[:MESSAGE_LENGTH].decode(errors="ignore")


def mark(label: str) -> str:
    """Return the name of a label without its prefix. The annotation with the model's record ends with the same name."""
    return label.rpartition("/")[2]
