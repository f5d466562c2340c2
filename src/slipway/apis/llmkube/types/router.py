"""The ModelRouter kind of LLMKube: a model ID whose rules select the service. The CRD is generated from this module."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from slipway.apis.llmkube.types.model import ATOMIC, INT32, INT64, Number64, SecretName, Time
from slipway.apis.llmkube.types.operation import Gateway, GatewayName
from slipway.apis.llmkube.types.service import Count, Port
from slipway.kube.objects import Kind, Object
from slipway.kube.schemas.conditions import CHECKED, Condition
from slipway.kube.schemas.core import core
from slipway.kube.schemas.crd import Column, CustomResource

KIND = Kind(group="inference.llmkube.dev", version="v1alpha1", kind="ModelRouter", plural="modelrouters")

Dollars = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?$")]
Name = Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9-]{0,62}$")]
Required = Annotated[str, Meta(min_length=1)]
Positive = Annotated[int, Meta(ge=1, extra_json_schema=INT32)]
Tier = Literal["local", "cloud"]


class ServiceName(msgspec.Struct, frozen=True):
    """An InferenceService in the router's namespace."""

    name: Annotated[str, Meta(extra_json_schema={"default": ""})] = ""
    """Name of the InferenceService."""


class External(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A provider outside of the cluster. Routers with one are rejected."""

    provider: Literal["anthropic", "openai", "bedrock", "vertex_ai", "litellm"]
    """API of the provider."""
    model: str
    """Model name at the provider."""
    url: str = ""
    """URL of the API."""
    credentials_secret_ref: Annotated[SecretName, Meta(extra_json_schema=ATOMIC)] | None = None
    """Secret with the provider's keys."""


class HealthCheck(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Health check of a backend. It has no effect, because pods have their own readiness; the condition FieldsUsed
    reports this."""

    path: str = ""
    """Path of the check."""
    interval_seconds: Positive = 10
    """Seconds between two checks."""
    timeout_seconds: Positive = 2
    """Timeout of a check in seconds."""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars per million tokens. They have no effect; the condition FieldsUsed reports this."""

    prompt_usd: Dollars = msgspec.field(default="", name="promptUSD")
    """Price of input tokens."""
    completion_usd: Dollars = msgspec.field(default="", name="completionUSD")
    """Price of output tokens."""


class Backend(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A backend that can answer requests."""

    name: Name
    """Name of the backend in rules."""
    inference_service_ref: Annotated[ServiceName, Meta(extra_json_schema=ATOMIC)] | None = None
    """An InferenceService in the router's namespace."""
    display_name: str = ""
    """Name that BackendNameMatch compares with a request's model, if it is a valid model ID. Empty means name."""
    external: External | None = None
    """A provider outside of the cluster, instead of an InferenceService."""
    tier: Tier = "local"
    """Rules for sensitive data must not use backends with the tier cloud."""
    capabilities: tuple[str, ...] = ()
    """Capabilities of the backend, for requiredCapabilities of rules."""
    weight: Annotated[int, Meta(ge=0, extra_json_schema=INT32)] | None = None
    """Weight for the strategy weighted. Empty means 1."""
    timeout: str = ""
    """Maximum time until its answer begins, as a Go duration such as 30s, unless a rule sets it."""
    health_check: HealthCheck | None = None
    """Health check of the backend."""
    cost_per_million_tokens: Cost | None = None
    """Cost of the backend."""


class Match(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Requests that a rule applies to. All conditions must match."""

    models: tuple[str, ...] = ()
    """Model IDs, or patterns with * and ?. IDs become aliases of the router; patterns select from its IDs."""
    headers: dict[str, str] = {}
    """Header values."""
    data_classification: tuple[str, ...] = ()
    """Allowed values of the header in policy.classification."""
    task_complexity: Literal["simple", "moderate", "complex"] | None = None
    """Value of the header x-llmkube-task-complexity."""
    required_capabilities: tuple[str, ...] = ()
    """Required capabilities of a backend. The rule skips its backends without them."""
    latency_slo_ms: Positive | None = msgspec.field(default=None, name="latencySLOMs")
    """Target for the time to the first token. Routers with it are rejected."""


class Action(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Backends for the requests of a rule."""

    backends: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Names of backends, in order."""
    strategy: Literal["primary-fallback", "weighted", "shadow"] = "primary-fallback"
    """primary-fallback uses the next backend if one fails before its answer begins. weighted distributes requests by
    weight. Routers with shadow are rejected."""


class RouterRule(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Routing of some requests."""

    name: Name
    """Name of the rule."""
    match: Match = Match()
    """Requests that the rule applies to. Empty means all."""
    route: Action
    """Backends for requests that match the rule."""
    fail_closed: bool = False
    """If true, requests that match the rule fail if all its backends fail."""
    timeout: str = ""
    """Maximum time until a backend's answer begins, as a Go duration such as 30s."""


class Classification(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Classification of a request's data."""

    mode: Literal["header-only", "detector", "hybrid"] = "header-only"
    """header-only uses a header. Routers with another mode are rejected."""
    header_key: str = ""
    """Name of the header. Empty means x-llmkube-classification."""
    sensitive_classifications: tuple[str, ...] | None = None
    """Classes whose rules must be failClosed and use only backends of the tier local. Empty means pii and phi."""


class AuditLog(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Audit log of the original. It has no effect, because the gateway's access log contains the requests; the
    condition FieldsUsed reports this."""

    sink: Literal["stdout", "file", "otlp"] = "stdout"
    """Destination of the log."""
    file_path: str = ""
    """Path of the file."""
    include_request_body: bool = False
    """Includes request bodies."""


class Budget(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Spending limit. Routers with one are rejected."""

    name: Name
    """Name of the budget."""
    scope: Literal["router", "rule", "team"]
    """Requests that count towards the budget."""
    rule_name: str = ""
    """Name of the rule."""
    header_key: str = ""
    """Header with the team."""
    max_tokens: Annotated[int, Meta(ge=1, extra_json_schema=INT64)] | None = None
    """Maximum number of tokens."""
    max_usd: Dollars = msgspec.field(default="", name="maxUSD")
    """Maximum amount in dollars."""
    window_seconds: Positive = 3600
    """Time window in seconds."""


class JwtAuth(msgspec.Struct, frozen=True, kw_only=True):
    """Required tokens of requests."""

    provider: Required
    """Name of the provider."""
    issuer: Required
    """URL of the issuer."""
    jwks_uri: Required = msgspec.field(name="jwksURI")
    """URL of the keys."""
    team_claim: Required = msgspec.field(name="teamClaim")
    """Claim with the team."""
    header_key: str = msgspec.field(default="", name="headerKey")
    """Header that receives the team."""


class TeamAllowlist(msgspec.Struct, frozen=True, kw_only=True):
    """Models that a team may use."""

    team: Required
    """Name of the team."""
    models: tuple[str, ...] = ()
    """Allowed models. Empty means all."""


class Auth(msgspec.Struct, frozen=True, kw_only=True):
    """Authentication with tokens. Routers with it are rejected if dataPlane is Gateway. With Proxy it has no effect, as
    in the original."""

    jwt: JwtAuth | None = None
    """Required tokens of requests."""
    allowlists: tuple[TeamAllowlist, ...] = ()
    """Allowed models of each team."""


class Policy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Settings for all rules."""

    classification: Classification = Classification()
    """Classification of a request's data."""
    budgets: tuple[Budget, ...] = ()
    """Spending limits."""
    audit_log: AuditLog | None = None
    """Audit log of the original."""
    auth: Auth | None = None
    """Authentication with tokens."""


class Proxy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Proxy of the original. There is none, because the gateway routes. Only responseHeaderTimeout has an effect."""

    replicas: Annotated[int, Meta(ge=1, le=10, extra_json_schema=INT32)] | None = None
    """Number of proxy pods."""
    image: str = ""
    """Image of the proxy."""
    image_pull_secrets: tuple[Annotated[SecretName, Meta(extra_json_schema=ATOMIC)], ...] = ()
    """Secrets with registry credentials."""
    node_selector: dict[str, str] = {}
    """Labels of the nodes that may run the proxy."""
    resources: Annotated[Object, core("ResourceRequirements")] | None = None
    """Resources of the proxy pods."""
    revision_history_limit: Annotated[int, Meta(ge=0, extra_json_schema=INT32)] | None = None
    """Number of old ReplicaSets to keep."""
    quarantine_duration: str = ""
    """Time during which a failed backend is skipped."""
    response_header_timeout: str = ""
    """Maximum time until a backend's answer begins, as a Go duration such as 30s, unless a rule or the backend sets
    it."""


class RouterEndpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Service of the original. There is none, because the gateway serves the router's ID."""

    port: Port = 8080
    """Port of the Service."""
    path: str = "/v1/chat/completions"
    """Path at the end of status.endpoint."""
    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """Type of the Service."""
    node_port: Annotated[int, Meta(ge=30000, le=32767, extra_json_schema=INT32)] | None = None
    """Node port of the Service."""
    gateway: Gateway | None = None
    """Additional model ID at a Gateway."""


class McpServer(msgspec.Struct, frozen=True, kw_only=True):
    """MCP server of the original."""

    enabled: bool = False
    """Enables the MCP server. Routers with it are rejected."""


class ModelRouterSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Backends, and the rules that select them."""

    data_plane: Literal["Proxy", "Gateway"] = "Proxy"
    """Data plane of the original. Slipway's gateway routes with either."""
    gateway_ref: GatewayName | None = None
    """Gateway of the original. It has no effect."""
    backends: Annotated[tuple[Backend, ...], Meta(min_length=1)]
    """Backends that can answer requests."""
    rules: tuple[RouterRule, ...] = ()
    """Routing rules. The first matching rule selects the backends. If they all fail, the next matching rule applies,
    and finally defaultRoute, unless the rule is failClosed."""
    default_route: str = ""
    """Name of the backend for all other requests."""
    default_route_strategy: Literal["Static", "BackendNameMatch"] = "Static"
    """BackendNameMatch sends a request without a matching rule to the backend with the name of its model, if any. The
    backends' names become aliases of the router."""
    policy: Policy = Policy()
    """Settings for all rules."""
    proxy: Proxy = Proxy()
    """Proxy of the original."""
    endpoint: RouterEndpoint | None = None
    """Service of the original."""
    mcp_server: McpServer = McpServer()
    """MCP server of the original."""


class BackendStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Observed state of a backend."""

    name: str
    """Name of the backend."""
    address: str | UnsetType = UNSET
    """URL of the InferenceService."""
    tier: str | UnsetType = UNSET
    """Tier of the backend."""
    healthy: bool | UnsetType = UNSET
    """True if one of the backend's pods is ready."""
    message: str | UnsetType = UNSET
    """Reason why none is ready."""
    last_probe_time: Time | UnsetType = UNSET
    """Not set, because backends are not probed."""


class BudgetStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Observed spending. Not set, because routers with a budget are rejected."""

    name: str
    """Name of the budget."""
    tokens_used: Number64 | UnsetType = UNSET
    """Number of tokens."""
    usd_used: str | UnsetType = msgspec.field(default=UNSET, name="usdUsed")
    """Amount in dollars."""
    utilization: str | UnsetType = UNSET
    """Used part of the budget."""


class RouterGatewayStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """State of the original's Gateway. Not set."""

    endpoint: str | UnsetType = UNSET
    """URL of the Gateway."""
    model_name: str | UnsetType = UNSET
    """Name of the model."""
    route_ready: bool | UnsetType = UNSET
    """True if the Gateway has the route."""
    auth_enabled: bool | UnsetType = UNSET
    """True if the Gateway validates tokens."""


class ModelRouterStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Observed state of the router."""

    phase: Literal["Pending", "Provisioning", "Ready", "Degraded", "Failed"] | UnsetType = UNSET
    """Ready means that all backends answer, Degraded that some do, Pending that none does yet. Failed means that the
    router is rejected."""
    endpoint: str | UnsetType = UNSET
    """Not set. Send requests to the gateway, with the router's name as the model."""
    active_rules: Count | UnsetType = UNSET
    """Number of active rules."""
    backends: tuple[BackendStatus, ...] | UnsetType = UNSET
    """Observed state of each backend."""
    budget_utilization: tuple[BudgetStatus, ...] | UnsetType = UNSET
    """Not set."""
    gateway: RouterGatewayStatus | UnsetType = UNSET
    """State of the original's Gateway. Not set."""
    last_updated: Time | UnsetType = UNSET
    """Time of the last change of this status."""
    model_id: str | UnsetType = UNSET
    """The ID that clients send. Missing if there is none."""
    observed_generation: Number64 | UnsetType = UNSET
    """The spec generation that this status describes."""
    conditions: Annotated[tuple[Condition, ...], Meta(extra_json_schema=CHECKED)] | UnsetType = UNSET
    """Accepted, Available, Routed, BackendsReady and FieldsUsed."""


MODEL_ROUTER = CustomResource(
    kind=KIND,
    spec=ModelRouterSpec,
    status=ModelRouterStatus,
    description="A model ID at the gateway whose requests are routed by rules.",
    short_names=("mr",),
    columns=(
        Column("Phase", "string", ".status.phase"),
        Column("Endpoint", "string", ".status.endpoint"),
        Column("Rules", "integer", ".status.activeRules"),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
)
