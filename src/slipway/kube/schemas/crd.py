"""CRDs from msgspec Structs, so that types, constraints, descriptions and schemas are written once.

Annotations become constraints. The docstrings of Structs and of their attributes become descriptions.
``Meta(extra_json_schema=...)`` adds what a Struct cannot express; ``cel`` and ``list_map`` build common values for it.
``core`` (:mod:`slipway.kube.schemas.core`) gives a plain object the schema of a Kubernetes type, such as a probe, and
``Meta(extra={"schema": ...})`` gives it any other schema.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import msgspec
import yaml
from msgspec import inspect as types

from slipway.kube.objects import CRD, Kind, Object
from slipway.kube.schemas.core import inlined

PRESERVES_UNKNOWN: Object = {"x-kubernetes-preserve-unknown-fields": True}
INT_OR_STRING: Object = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}

UNSUPPORTED = "Not supported. It is stored without effect, and listed in the condition FieldsIgnored."


class Rule(msgspec.Struct, frozen=True):
    """A CEL rule that the API server checks, and the message for an object that violates it."""

    rule: str
    message: str


class Column(msgspec.Struct, frozen=True):
    """A column of ``kubectl get``. A column with priority 1 is shown only with ``-o wide``."""

    name: str
    type: str
    json_path: str
    priority: int = 0


class Scale(msgspec.Struct, frozen=True):
    """JSON paths of the scale subresource, which ``kubectl scale`` and autoscalers use."""

    spec_replicas: str
    status_replicas: str
    selector: str = ""


class CustomResource(msgspec.Struct, frozen=True, kw_only=True):
    """One kind in one version, from which :meth:`manifest` builds the CustomResourceDefinition.

    Fields of the Structs follow these rules. A field without a Python default is required. A Python default that is not
    empty becomes a default in the spec's schema; None, UNSET, ``""``, 0, False, an empty collection and a Struct count
    as empty. ``T | None`` and ``T | UnsetType`` are an optional T, ``dict[str, Any]`` is an object whose unknown fields
    are kept, and ``int | str`` is an int-or-string.

    A Struct may have CEL rules in ``validations: ClassVar[tuple[Rule, ...]]``. Its ``inlined: ClassVar[Object]`` may be
    the schema of an object whose fields are inlined next to its own, such as ``core.inlined("PodSpec")``. The Struct's
    own fields take precedence.
    """

    kind: Kind
    spec: type[msgspec.Struct]
    status: type[msgspec.Struct] | None = None
    description: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    scale: Scale | None = None
    validations: tuple[Rule, ...] = ()
    """CEL rules for the whole object."""
    unsupported: Mapping[str, Object] = {}
    """Spec fields that have no effect. The key is a path such as ``a.b`` or ``a[].b``, and the value is the schema that
    makes the API server keep the field anyway. The Structs must not declare these fields."""

    listing: ClassVar[Mapping[str, str]] = {"apiVersion": "string", "kind": "string", "metadata": "object"}

    def manifest(self) -> Object:
        """Return the CustomResourceDefinition as an object to apply."""
        kind = self.kind
        names: Object = {
            "kind": kind.kind,
            "listKind": f"{kind.kind}List",
            "plural": kind.plural,
            "singular": kind.kind.lower(),
        }
        if self.short_names:
            names["shortNames"] = list(self.short_names)
        if self.categories:
            names["categories"] = list(self.categories)
        return {
            "apiVersion": CRD.api_version,
            "kind": CRD.kind,
            "metadata": {"name": f"{kind.plural}.{kind.group}"},
            "spec": {
                "group": kind.group,
                "names": names,
                "scope": "Namespaced" if kind.namespaced else "Cluster",
                "versions": [self._version()],
            },
        }

    def _version(self) -> Object:
        version: Object = {"name": self.kind.version, "served": True, "storage": True}
        if self.columns:
            version["additionalPrinterColumns"] = [_column(column) for column in self.columns]
        version["schema"] = {"openAPIV3Schema": self._root()}
        subresources: Object = {"status": {}} if self.status is not None else {}
        if self.scale is not None:
            paths = {
                "specReplicasPath": self.scale.spec_replicas,
                "statusReplicasPath": self.scale.status_replicas,
                "labelSelectorPath": self.scale.selector,
            }
            subresources["scale"] = {name: path for name, path in paths.items() if path}
        if subresources:
            version["subresources"] = subresources
        return version

    def _root(self) -> Object:
        root: Object = {"type": "object"}
        if self.description:
            root["description"] = self.description
        spec = struct_schema(self.spec, defaults=True)
        for path, schema in self.unsupported.items():
            _insert(spec, path, {**schema, "description": UNSUPPORTED})
        if "required" in spec:
            root["required"] = ["spec"]
        properties: Object = {name: {"type": type_} for name, type_ in self.listing.items()}
        root["properties"] = {**properties, "spec": spec}
        if self.status is not None:
            root["properties"]["status"] = struct_schema(self.status, defaults=False)
        if self.validations:
            root |= cel(*self.validations)
        return root


def _insert(schema: Object, path: str, field: Object) -> None:
    """Add a field to a schema. Raise ValueError if the field exists, or if its parent does not."""
    *places, name = path.split(".")
    for place in places:
        below = schema["properties"].get(place.removesuffix("[]"), {})
        schema = below.get("items", {}) if place.endswith("[]") else below
        if "properties" not in schema:
            raise ValueError(f"{path}: {place} does not exist")
    if name in schema["properties"]:
        raise ValueError(f"{path} is supported: remove it from the unsupported fields")
    schema["properties"][name] = field


def set_fields(spec: Object, paths: Iterable[str]) -> list[str]:
    """Return the entries of ``paths`` (``a.b`` or ``a[].b``) that a spec sets. Null and empty values do not count."""
    return [path for path in paths if any(value not in (None, "", [], {}) for value in _values(spec, path.split(".")))]


def _values(value: Any, places: Sequence[str]) -> Iterator[Any]:
    if not places:
        yield value
    elif isinstance(value, Mapping):
        part = value.get(places[0].removesuffix("[]"))
        several = part if places[0].endswith("[]") and isinstance(part, list) else (part,)
        for one in several:
            yield from _values(one, places[1:])


def cel(*rules: Rule) -> Object:
    """Return schema keywords for CEL rules, for ``Annotated[T, Meta(extra_json_schema=cel(Rule(...)))]``."""
    return {"x-kubernetes-validations": [{"rule": rule.rule, "message": rule.message} for rule in rules]}


def list_map(*keys: str) -> Object:
    """Return schema keywords for a list whose elements are identified by the fields ``keys``. Server-side apply merges
    such elements individually."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


LARGE = 8000
"""Size in characters above which a repeated schema, such as that of a container, is written once and then
referenced."""


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return not isinstance(data, dict) or len(str(data)) < LARGE


def to_yaml(*manifests: Object) -> str:
    """Return YAML documents, with the same text for the same manifests. Large schemas are written once; otherwise a CRD
    with many pod specs would have two megabytes."""
    return yaml.dump_all(manifests, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True, explicit_start=True)


def struct_schema(struct: type[msgspec.Struct], *, defaults: bool) -> Object:
    """Return the structural schema of a Struct. ``defaults`` is whether Python's defaults become the schema's defaults.

    Raise TypeError for a type that a structural schema cannot express.
    """
    info = types.type_info(struct)
    if not isinstance(info, types.StructType):
        raise TypeError(f"{struct!r} is not a Struct")
    texts = _attribute_texts(struct)
    properties = {field.encode_name: _field(field, texts.get(field.name, ""), defaults) for field in info.fields}
    beside: Object = getattr(struct, "inlined", {})
    schema: Object = {"type": "object"}
    if text := _text(struct.__doc__):
        schema["description"] = text
    own = [field.encode_name for field in info.fields if field.required]
    if required := [*own, *(name for name in beside.get("required", ()) if name not in properties)]:
        schema["required"] = required
    schema["properties"] = {**beside.get("properties", {}), **properties}
    schema |= {word: value for word, value in beside.items() if word not in schema and word != "required"}
    if rules := getattr(struct, "validations", ()):
        schema |= cel(*rules)
    return schema


def _field(field: types.Field, text: str, defaults: bool) -> Object:
    schema = _schema(field.type, defaults)
    if text:
        schema["description"] = text
    if defaults and "default" not in schema and (default := _default(field)):
        schema["default"] = default
    return {name: schema[name] for name in ("type", "description") if name in schema} | schema


def _default(field: types.Field) -> Any:
    """Return the field's default as JSON, or an empty value if the API server needs no default."""
    value = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    if value is msgspec.NODEFAULT or value is msgspec.UNSET or isinstance(value, msgspec.Struct):
        return None
    return msgspec.to_builtins(value)


_PLAIN: dict[type[types.Type], Object] = {
    types.BoolType: {"type": "boolean"},
    types.AnyType: PRESERVES_UNKNOWN,
    types.RawType: PRESERVES_UNKNOWN,
    types.DateTimeType: {"type": "string", "format": "date-time"},
}


def _schema(info: types.Type, defaults: bool) -> Object:
    """Return the structural schema of a field's type. Raise TypeError for a type that a structural schema cannot
    express."""
    if isinstance(info, types.Metadata):
        extra = info.extra or {}
        if "core" in extra:
            schema = inlined(extra["core"], extra["optional"])
        else:
            schema = extra.get("schema") or _schema(info.type, defaults)
        return schema | (info.extra_json_schema or {})
    if isinstance(info, types.UnionType):
        return _union(info, defaults)
    if isinstance(info, types.StructType):
        return struct_schema(info.cls, defaults=defaults)
    if isinstance(info, types.DictType):
        return _dict(info, defaults)
    if isinstance(info, (types.ListType, types.VarTupleType)):
        items = _schema(info.item_type, defaults)
        return {"type": "array", "items": items} | _present(minItems=info.min_length, maxItems=info.max_length)
    if isinstance(info, types.StrType):
        limits = _present(minLength=info.min_length, maxLength=info.max_length, pattern=info.pattern)
        return {"type": "string"} | limits
    if isinstance(info, (types.IntType, types.FloatType)):
        return _number(info)
    if isinstance(info, types.LiteralType):
        kind = "string" if isinstance(info.values[0], str) else "integer"
        return {"type": kind, "enum": list(info.values)}
    if type(info) in _PLAIN:
        return dict(_PLAIN[type(info)])
    raise TypeError(f"no schema for {info!r}")


def _union(info: types.UnionType, defaults: bool) -> Object:
    members = [member for member in info.types if not isinstance(member, types.NoneType)]
    if len(members) == 1:
        return _schema(members[0], defaults)
    if {type(member) for member in members} == {types.IntType, types.StrType}:
        return dict(INT_OR_STRING)
    raise TypeError(f"structural schemas do not allow the union {info!r}")


def _dict(info: types.DictType, defaults: bool) -> Object:
    if isinstance(info.value_type, types.AnyType):
        return {"type": "object", **PRESERVES_UNKNOWN}
    limits = _present(minProperties=info.min_length, maxProperties=info.max_length)
    return {"type": "object", "additionalProperties": _schema(info.value_type, defaults)} | limits


def _number(info: types.IntType | types.FloatType) -> Object:
    schema: Object = {"type": "integer" if isinstance(info, types.IntType) else "number"}
    schema |= _present(minimum=info.ge, maximum=info.le, multipleOf=info.multiple_of)
    if info.gt is not None:
        schema |= {"minimum": info.gt, "exclusiveMinimum": True}
    if info.lt is not None:
        schema |= {"maximum": info.lt, "exclusiveMaximum": True}
    return schema


def _present(**values: Any) -> Object:
    return {name: value for name, value in values.items() if value is not None}


def _column(column: Column) -> Object:
    entry: Object = {"name": column.name, "type": column.type, "jsonPath": column.json_path}
    return entry | ({"priority": column.priority} if column.priority else {})


def _text(docstring: str | None) -> str:
    """Return a docstring as a description, with each paragraph on one line."""
    paragraphs = inspect.cleandoc(docstring or "").split("\n\n")
    return "\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _attribute_texts(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Return the docstrings below attributes, by attribute name, from the source of the Struct and its bases."""
    texts: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if base in (object, msgspec.Struct) or not issubclass(base, msgspec.Struct):
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
        for statement, below in pairwise(body):
            match statement, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as text)):
                    texts[name] = _text(text)
    return texts
