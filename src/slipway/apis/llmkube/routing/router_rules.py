"""Conversion of a ModelRouter's rules to the targets of a route. Pure.

The original sends all requests through its own proxy. In Slipway, the router's name is a model ID at the gateway, and a
route has the same effect as the proxy. Each backend of a rule that has the required capabilities becomes a target with
the conditions of the rule. With BackendNameMatch, each backend also becomes a target for the model ID that selects it.
``defaultRoute`` becomes the last target. Rules that a route cannot express are rejected.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec

from slipway.apis.llmkube.services import pods
from slipway.apis.llmkube.types.router import Backend, Match, ModelRouterSpec, RouterRule
from slipway.kube.values.times import parse_duration
from slipway.serving.contract.api import InvalidSpecError
from slipway.serving.routing.route import MODEL_ID, MOST_TARGETS, Target, TargetConditions

CLASS_HEADER, COMPLEXITY_HEADER = "x-llmkube-classification", "x-llmkube-task-complexity"
SENSITIVE = ("pii", "phi")
_PATTERN = frozenset("*?[")
_MOST_SECONDS = 86400
_MOST_CHARACTERS = 253
"""Maximum number of characters in a model ID, or in a pattern for model IDs."""
_MOST_WORDS = 1024
"""Maximum total number of rules, backends, IDs, patterns and capabilities of a router. It limits the cost that one
author can cause."""


class Routing(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of a router, as targets of a route."""

    targets: tuple[Target, ...]
    aliases: tuple[str, ...]
    """Model IDs that the rules name or, with BackendNameMatch, that select a backend (see :func:`label_of`), without
    the router's own IDs."""
    active: int
    """Number of rules that requests can match."""


def routing(spec: ModelRouterSpec, ids: Sequence[str]) -> Routing:
    """Convert the rules of a router to the targets of a route. ``ids`` are the router's own model IDs. Raise
    InvalidSpecError if the spec is contradictory, or a route cannot express the rules."""
    _check_size(spec)
    backends = {backend.name: backend for backend in spec.backends}
    _check(spec, backends)
    named: Iterable[str] = (model for rule in spec.rules for model in rule.match.models)
    labels = {label_of(backend): backend for backend in spec.backends} if matches_names(spec) else {}
    named = (*(one for one in named if not _PATTERN & set(one)), *labels)
    aliases = tuple(dict.fromkeys(one for one in named if one not in ids))
    targets: list[Target] = []
    active = 0
    for rule in spec.rules:
        rule_targets = tuple(_of_rule(spec, rule, backends, (*ids, *aliases), len(targets)))
        targets += rule_targets
        active += bool(rule_targets)
    for label, backend in labels.items():
        targets.append(_target(spec, backend, TargetConditions({}, (label,)), len(targets), ""))
    if spec.default_route:
        targets.append(_target(spec, backends[spec.default_route], TargetConditions(), len(targets), ""))
    if not targets:
        raise InvalidSpecError("NoRoute", "spec: no rule can match, and there is no defaultRoute")
    if len(targets) > MOST_TARGETS:
        text = f"the rules have {len(targets)} backends in total, and a route can have {MOST_TARGETS}"
        raise InvalidSpecError("TooManyTargets", f"spec.rules: {text}")
    return Routing(targets=tuple(targets), aliases=aliases, active=active)


def matches_names(spec: ModelRouterSpec) -> bool:
    """Whether a request that matches no rule is sent to the backend with the name of its model."""
    return spec.default_route_strategy == "BackendNameMatch"


def label_of(backend: Backend) -> str:
    """Return the model ID with which a request selects a backend: its display name if that is a valid ID, otherwise its
    name."""
    return backend.display_name if MODEL_ID.fullmatch(backend.display_name) else backend.name


def _of_rule(
    spec: ModelRouterSpec, rule: RouterRule, backends: Mapping[str, Backend], ids: Sequence[str], order: int
) -> Iterator[Target]:
    """Yield the targets of a rule: its backends with the required capabilities. Yield none if no request can match the
    rule. ``ids`` are the model IDs of the router, and ``order`` is the position of the first target."""
    needed = set(rule.match.required_capabilities)
    able = [backends[name] for name in rule.route.backends if needed <= set(backends[name].capabilities)]
    when = _build_conditions(spec, rule.match, ids)
    for number, backend in enumerate(able if when else ()):
        weighted = rule.route.strategy == "weighted"
        target = _target(spec, backend, when or TargetConditions(), order + (0 if weighted else number), rule.timeout)
        weight = (1 if backend.weight is None else backend.weight) if weighted else 1
        only = rule.fail_closed and (weighted or backend is able[-1])
        yield msgspec.structs.replace(target, weight=min(weight, 1_000_000), only=only)


def _target(spec: ModelRouterSpec, backend: Backend, when: TargetConditions, order: int, timeout: str) -> Target:
    service = backend.inference_service_ref.name if backend.inference_service_ref else ""
    timeout_text = timeout or backend.timeout or spec.proxy.response_header_timeout
    return Target(
        pods.service_name(service), order=order, when=when, answer_seconds=_seconds(timeout_text) if timeout_text else 0
    )


def _seconds(duration: str) -> int:
    try:
        return max(1, min(_MOST_SECONDS, math.ceil(parse_duration(duration))))
    except ValueError as error:
        raise InvalidSpecError("InvalidSpec", f"timeout {duration[:64]!r}: {error}") from error


def _build_conditions(spec: ModelRouterSpec, match: Match, ids: Sequence[str]) -> TargetConditions | None:
    """Return the conditions that a request must meet to match a rule; None if no request can meet them. ``ids`` are the
    model IDs of the router, from which the rule's patterns select."""
    headers: dict[str, tuple[str, ...]] = {}
    matchers: list[tuple[str, tuple[str, ...]]] = [(name, (value,)) for name, value in match.headers.items()]
    if match.data_classification:
        matchers.append((spec.policy.classification.header_key or CLASS_HEADER, match.data_classification))
    if match.task_complexity:
        matchers.append((COMPLEXITY_HEADER, (match.task_complexity,)))
    for name, values in matchers:
        before = headers.get(name.lower(), values)
        headers[name.lower()] = tuple(dict.fromkeys(value for value in values if value in before))
    models = tuple(one for one in ids if any(fnmatchcase(one, pattern) for pattern in match.models))
    if not all(headers.values()) or (match.models and not models):
        return None
    return TargetConditions(headers, models)


def _check_size(spec: ModelRouterSpec) -> None:
    """Raise InvalidSpecError if the router exceeds a size limit. This check comes first, because it is cheap."""
    words = len(spec.rules) + len(spec.backends)
    words += sum(len(backend.capabilities) for backend in spec.backends)
    for rule in spec.rules:
        match = rule.match
        lists = (match.models, match.headers, match.data_classification, match.required_capabilities)
        words += len(rule.route.backends) + sum(map(len, lists))
    if words > _MOST_WORDS:
        text = f"{words} rules, backends, IDs and capabilities exceed the limit of {_MOST_WORDS}"
        raise InvalidSpecError("TooManyTargets", f"spec: {text}")
    if any(len(model) > _MOST_CHARACTERS for rule in spec.rules for model in rule.match.models):
        raise InvalidSpecError("InvalidSpec", f"spec.rules: a model has {_MOST_CHARACTERS} characters at most")


def _check(spec: ModelRouterSpec, backends: Mapping[str, Backend]) -> None:
    """Raise InvalidSpecError if the spec contradicts itself or uses an unsupported feature."""
    if len(backends) < len(spec.backends):
        raise InvalidSpecError("InvalidSpec", "spec.backends: two of them have the same name")
    if len({rule.name for rule in spec.rules}) < len(spec.rules):
        raise InvalidSpecError("InvalidSpec", "spec.rules: two of them have the same name")
    for backend in spec.backends:
        _check_backend(backend)
    if spec.policy.budgets:
        text = "budgets are not supported. Limit API keys instead (tokensPerMinute)"
        raise InvalidSpecError("BudgetNotServed", f"spec.policy.budgets: {text}")
    if spec.data_plane == "Gateway" and spec.policy.auth and (spec.policy.auth.jwt or spec.policy.auth.allowlists):
        text = "a router does not check clients. Remove it, and restrict API keys or token subjects to models"
        raise InvalidSpecError("AuthNotServed", f"spec.policy.auth: {text}")
    if spec.policy.classification.mode != "header-only":
        text = "requests are not classified by content. Use header-only"
        raise InvalidSpecError("ClassificationNotServed", f"spec.policy.classification.mode: {text}")
    if spec.mcp_server.enabled:
        raise InvalidSpecError("McpNotServed", "spec.mcpServer.enabled: MCP is not supported. Remove it")
    if spec.default_route and spec.default_route not in backends:
        raise InvalidSpecError("UnknownBackend", f"spec.defaultRoute: there is no backend {spec.default_route!r}")
    for rule in spec.rules:
        _check_rule(spec, rule, backends)


def _check_backend(backend: Backend) -> None:
    place = f"spec.backends[{backend.name}]"
    if backend.external:
        text = "external backends are not supported. Use an InferenceService, or remove it and its rules"
        raise InvalidSpecError("ExternalNotServed", f"{place}.external: {text}")
    if not backend.inference_service_ref or not backend.inference_service_ref.name:
        raise InvalidSpecError("InvalidSpec", f"{place}: inferenceServiceRef must name an InferenceService")


def _check_rule(spec: ModelRouterSpec, rule: RouterRule, backends: Mapping[str, Backend]) -> None:
    place = f"spec.rules[{rule.name}]"
    for name in rule.route.backends:
        if name not in backends:
            raise InvalidSpecError("UnknownBackend", f"{place}.route.backends: there is no backend {name[:64]!r}")
    if rule.route.strategy == "shadow":
        text = "mirroring is not supported. Use weighted, or remove it"
        raise InvalidSpecError("ShadowNotServed", f"{place}.route.strategy: {text}")
    if rule.match.latency_slo_ms is not None:
        text = "latency targets are not supported. Use a timeout, after which the next backend is used"
        raise InvalidSpecError("LatencyNotServed", f"{place}.match.latencySLOMs: {text}")
    for model in rule.match.models:
        if not _PATTERN & set(model) and not MODEL_ID.fullmatch(model):
            raise InvalidSpecError("InvalidSpec", f"{place}.match.models: {model[:64]!r} is not a model ID")
    needed = set(rule.match.required_capabilities)
    if rule.fail_closed and not any(needed <= set(backends[name].capabilities) for name in rule.route.backends):
        text = f"it is failClosed, and none of its backends has {', '.join(sorted(needed))[:200]}"
        raise InvalidSpecError("NoCapableBackend", f"{place}: {text}")
    sensitive = spec.policy.classification.sensitive_classifications
    classes = set(rule.match.data_classification) & set(SENSITIVE if sensitive is None else sensitive)
    remote = any(backends[name].tier != "local" for name in rule.route.backends)
    if classes and (remote or not rule.fail_closed):
        text = f"a rule for {min(classes)[:64]!r} must be failClosed, with only backends of the tier local"
        raise InvalidSpecError("NotFailClosed", f"{place}: {text}")
