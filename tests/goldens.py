"""Expected outcomes of many examples in one text file: each is written as its differences from a similar example.

A section begins with ``## NAME`` or ``## NAME of BASE``. Each line below sets one field of the outcome, on top of the
base if there is one; ``- FIELD`` removes a field, or a child with all its fields:

    Deployment/model-<name> spec.template.spec.containers[server].image = ollama/ollama:0.30.0
    status.conditions[Available] = False WaitingForPods 1 "" No replica answers yet.
    - Service/model-<name> spec.ports[http].port

``<name>`` is the name of the example's resource. ``containers[] = server loader`` gives the order of a list's items.
A text of several lines follows its field, each line after a ``|``.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests import documents

NAME = "<name>"
ORDER = "[]"
CHILDREN = f"children{ORDER}"
CONDITION = ("status", "reason", "observedGeneration", "lastTransitionTime", "message")
PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]*")
TITLE = re.compile(r"[A-Z]\w*/\S+ ")
ITEM_NAME = re.compile(r"(?!\d+\Z)[\w./:@+-]+")
SEGMENT = re.compile(r'\[("(?:[^"\\]|\\.)*")\]|\[([^\]"]*)\]|\.?([A-Za-z_][\w-]*)')
SECTION = re.compile(r"## (\S+)(?: of (\S+))?")
EQUALS = "\\u003d"
"""An equals sign in a quoted key, as JSON may write it: a plain one ends the field."""
WRITE = "SLIPWAY_WRITE_GOLDEN"
WHOLE_ABOVE = 0.7
"""An example is written whole if its differences from the nearest one are a larger part of its own lines than this."""

Lines = dict[str, str]
"""Field -> value, both as they stand in the file."""


EXPECTED = "expected.txt"


class Section(NamedTuple):
    """The whole outcome of one example."""

    base: str
    """The example from which it is written; empty if it is written whole."""
    lines: Lines


# ---- a folder of examples --------------------------------------------------------------------------------------------


def examples(*folders: Path) -> list[Path]:
    """The examples of these folders: YAML files with a ``resource``. Each folder has their outcomes in expected.txt."""
    return sorted(path for folder in folders for path in folder.glob("*.yaml"))


def expected(example: Path) -> dict[str, Any]:
    """The expected outcome of an example."""
    return GoldenFile(example.parent / EXPECTED).read(example.stem, resource_name(example))


def check(example: Path, outcome: Mapping[str, Any]) -> None:
    """Compares the outcome of an example with the expected one, as :meth:`GoldenFile.check` does."""
    others = [path.stem for path in examples(example.parent)]
    GoldenFile(example.parent / EXPECTED).check(example.stem, resource_name(example), outcome, others)


def resource_name(example: Path) -> str:
    name: str = documents.read(example)["resource"]["metadata"]["name"]
    return name


# ---- a file ----------------------------------------------------------------------------------------------------------


class GoldenFile:
    """A file of expected outcomes. SLIPWAY_WRITE_GOLDEN=1 writes it anew instead of comparing it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self, example: str, name: str, outcome: Mapping[str, Any], examples: Iterable[str]) -> None:
        """Compares an outcome with what the file expects.

        Args:
            example: The name of the section.
            name: The name of the example's resource.
            outcome: ``children``, a list of Kubernetes objects, and any other fields.
            examples: All examples of this file. When the file is written anew, other sections are deleted.
        """
        lines = flatten(outcome, name)
        assert unflatten(lines, name) == json.loads(json.dumps(outcome)), "the file could not hold this outcome"
        if os.environ.get(WRITE):
            text = self.path.read_text() if self.path.exists() else ""
            self.path.write_text(render(replace(parse(text), example, lines, set(examples))))
        sections = self.sections()
        assert sections.keys() <= set(examples), f"{self.path} has sections of examples that do not exist"
        golden_lines = sections.get(example, Section("", {})).lines
        assert lines == golden_lines, "\n".join([f"{self.path}, {example}:", *_differences(lines, golden_lines)])

    def sections(self) -> dict[str, Section]:
        return _parse_file(self.path, self.path.stat().st_mtime_ns if self.path.exists() else 0)

    def read(self, example: str, name: str = "") -> dict[str, Any]:
        """The expected outcome of an example, whose resource has this name."""
        return unflatten(self.sections()[example].lines, name)


@functools.cache
def _parse_file(path: Path, _changed: int) -> dict[str, Section]:
    return parse(path.read_text()) if path.exists() else {}


def parse(text: str) -> dict[str, Section]:
    """Reads a file.

    Raises:
        ValueError: A line has neither form, removes what is not there, or a base does not stand above its section.
    """
    sections: dict[str, Section] = {}
    lines: Lines = {}
    field = ""
    for line in text.split("\n"):
        if head := SECTION.fullmatch(line):
            if head[2] and head[2] not in sections:
                raise ValueError(f"{line}: the base must stand above it")
            lines = dict(sections[head[2]].lines) if head[2] else {}
            sections[head[1]] = Section(head[2] or "", lines)
        elif line.startswith("- "):
            gone = [field for field in lines if field == line[2:] or field.startswith(f"{line[2:]} ")]
            if not gone:
                raise ValueError(f"## {list(sections)[-1]} has no field {line[2:]} to remove")
            for each in gone:
                del lines[each]
        elif line.startswith("|"):
            lines[field] += f"\n{line}"
        elif line:
            field, equals, value = line.partition(" = ")
            if not equals:
                raise ValueError(f"{line!r} is neither FIELD = VALUE nor - FIELD")
            lines.pop(field, None)
            lines[field] = value
    return sections


def render(sections: Mapping[str, Section]) -> str:
    blocks = []
    for example, (base, lines) in sections.items():
        title = f"## {example} of {base}" if base else f"## {example}"
        blocks.append("\n".join([title, *_differences(lines, sections[base].lines if base else {})]))
    return "\n\n".join(blocks) + "\n"


def _differences(lines: Lines, base: Lines) -> Iterator[str]:
    gone = set(base.get(CHILDREN, "").split()) - set(lines.get(CHILDREN, "").split())
    yield from (f"- {title}" for title in base.get(CHILDREN, "").split() if title in gone)
    yield from (f"- {field}" for field in base if field not in lines and field.partition(" ")[0] not in gone)
    yield from (f"{field} = {value}" for field, value in lines.items() if base.get(field) != value)


def replace(sections: dict[str, Section], example: str, lines: Lines, examples: set[str]) -> dict[str, Section]:
    """The sections with a new outcome for one example, and without those that are no examples.

    A section keeps its base. A new one, or one whose base is gone, gets the nearest of those above it.
    """
    kept = {name: section.lines for name, section in sections.items() if name in examples} | {example: lines}
    replaced: dict[str, Section] = {}
    for name, own in kept.items():
        keeps_base = name in sections and (not sections[name].base or sections[name].base in replaced)
        replaced[name] = Section(sections[name].base if keeps_base else _nearest(own, replaced), own)
    return replaced


def _nearest(lines: Lines, sections: Mapping[str, Section]) -> str:
    sizes = {name: _count(_differences(lines, section.lines)) for name, section in sections.items()}
    best = min(sizes, key=lambda name: sizes[name], default="")
    return best if best and sizes[best] <= WHOLE_ABOVE * _count(_differences(lines, {})) else ""


def _count(texts: Iterable[str]) -> int:
    return sum(text.count("\n") + 1 for text in texts)


# ---- an outcome as lines ---------------------------------------------------------------------------------------------


def flatten(outcome: Mapping[str, Any], name: str) -> Lines:
    """Turns an outcome into lines. Raises ValueError if two children have the same kind and name."""
    pairs = dict(_flatten_outcome(outcome))
    if not name:
        return pairs
    own = re.compile(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])")
    return {own.sub(NAME, field): own.sub(NAME, value) for field, value in pairs.items()}


def _flatten_outcome(outcome: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for field, value in outcome.items():
        if field != "children":
            yield from _flatten(value, _key(field))
            continue
        titles = [f"{child['kind']}/{child['metadata']['name']}" for child in value]
        if len(set(titles)) < len(titles):
            raise ValueError(f"two children have the same kind and name: {' '.join(titles)}")
        yield CHILDREN, " ".join(titles)
        for title, child in zip(titles, value, strict=True):
            for key, part in child.items():
                if key != "kind":
                    yield from _flatten(part, f"{title} {_key(key)}")


def _flatten(value: Any, field: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, part in value.items():
            yield from _flatten(part, f"{field}{_key(key, dot=True)}")
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        yield from _flatten_items(value, field)
    else:
        yield field, _write(value)


def _flatten_items(items: Sequence[Any], field: str) -> Iterator[tuple[str, str]]:
    if names := _names(items, "type", {"type", *CONDITION} - {"observedGeneration", "lastTransitionTime"}):
        yield f"{field}{ORDER}", " ".join(names)
        yield from ((f"{field}[{name}]", _write_condition(item)) for name, item in zip(names, items, strict=True))
    elif names := _names(items, "name", {"name"}):
        if len(names) > 1:
            yield f"{field}{ORDER}", " ".join(names)
        for name, item in zip(names, items, strict=True):
            yield from _flatten({key: part for key, part in item.items() if key != "name"}, f"{field}[{name}]")
    else:
        for number, item in enumerate(items):
            yield from _flatten(item, f"{field}[{number}]")


def _names(items: Sequence[Any], key: str, needed: set[str]) -> list[str]:
    """What tells the items apart, empty if this key does not, or if an item lacks a needed one."""
    if not all(isinstance(item, dict) and needed <= item.keys() for item in items):
        return []
    if key == "type" and any(item.keys() - {"type", *CONDITION} for item in items):
        return []
    names = [item[key] for item in items]
    fit = all(isinstance(name, str) and ITEM_NAME.fullmatch(name) for name in names)
    return names if fit and len(set(names)) == len(names) else []


def _key(key: str, *, dot: bool = False) -> str:
    return f"{'.' * dot}{key}" if PLAIN_KEY.fullmatch(key) else f"[{json.dumps(key).replace('=', EQUALS)}]"


def _write(value: Any) -> str:
    """A text stands as it is, unless it could be read as something else. Texts of several lines begin with a ``|``."""
    if isinstance(value, str) and len(value.replace("\n", " ").splitlines()) == 1:
        if "\n" in value:
            return "|" + "".join(f"\n|{line}" for line in value.split("\n"))
        if value == value.strip() and not value.startswith("|") and _read(value) == value:
            return value
    return json.dumps(value)


def _read(value: str) -> Any:
    if value.startswith("|"):
        return "\n".join(line[1:] for line in value.split("\n")[1:])
    try:
        data = json.loads(value)
    except ValueError:
        return value
    return value if isinstance(data, dict) and data else data  # fields of an object have lines of their own


def _write_condition(condition: Mapping[str, Any]) -> str:
    words = [json.dumps(condition[key]) if key in condition else "-" for key in CONDITION[2:4]]
    return " ".join([condition["status"], condition["reason"], *words, _write(condition["message"])])


def _read_condition(name: str, value: str) -> dict[str, Any]:
    status, reason, *words, message = value.split(" ", 4)
    rest = {key: json.loads(word) for key, word in zip(CONDITION[2:4], words, strict=True) if word != "-"}
    return {"type": name, "status": status, "reason": reason, **rest, "message": _read(message)}


# ---- lines as an outcome ---------------------------------------------------------------------------------------------


class Node:
    """A part of an outcome while its lines are read: a value, or parts by key, item name or number."""

    def __init__(self) -> None:
        self.value: str | None = None
        self.fields: dict[str, Node] = {}
        self.items: dict[str, Node] = {}
        self.order: list[str] | None = None

    def put(self, field: str, text: str) -> None:
        node = self
        for quoted, item, key in SEGMENT.findall(field.removesuffix(ORDER)):
            if quoted or key:
                node = node.fields.setdefault(json.loads(quoted) if quoted else key, Node())
            else:
                node = node.items.setdefault(item, Node())
        if field.endswith(ORDER):
            node.order = text.split()
        else:
            node.value = text

    def build(self) -> Any:
        if self.items:
            return [self._build_item(item) for item in self.order or sorted(self.items, key=_number)]
        if self.fields:
            return {key: node.build() for key, node in self.fields.items()}
        return _read(self.value or "")

    def _build_item(self, item: str) -> Any:
        node = self.items[item]
        if item.isdecimal():
            return node.build()
        if node.value is not None and node.value != "{}":
            return _read_condition(item, node.value)
        return {"name": item, **node.build()}


def _number(item: str) -> int:
    return int(item) if item.isdecimal() else 0


def unflatten(lines: Lines, name: str) -> dict[str, Any]:
    """Turns lines into the outcome of the example whose resource has this name."""
    root, titles = Node(), []
    children: dict[str, Node] = {}
    for written, value in lines.items():
        field, text = written.replace(NAME, name), value.replace(NAME, name)
        if field == CHILDREN:
            titles = text.split()
        elif TITLE.match(field):
            title, _space, rest = field.partition(" ")
            children.setdefault(title, Node()).put(rest, text)
        else:
            root.put(field, text)
    outcome = root.build() if root.fields else {}
    if CHILDREN in lines:
        outcome["children"] = [{"kind": title.partition("/")[0], **children[title].build()} for title in titles]
    return outcome
