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
    """A provider outside the cluster. Routers with an external backend are rejected."""

    provider: Literal["anthropic", "openai", "bedrock", "vertex_ai", "litellm"]
    """API of the provider."""
    model: str
    """Name of the model at the provider."""
    url: str = ""
    """URL of the provider's API."""
    credentials_secret_ref: Annotated[SecretName, Meta(extra_json_schema=ATOMIC)] | None = None
    """Secret with the provider's API keys."""


class HealthCheck(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Health check of a backend. It has no effect, because pods have their own readiness probes. The condition
    FieldsUsed reports this."""

    path: str = ""
    """HTTP path of the health check."""
    interval_seconds: Positive = 10
    """Seconds between two checks."""
    timeout_seconds: Positive = 2
    """Timeout of each check in seconds."""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Prices in US dollars per million tokens. They have no effect, as the condition FieldsUsed reports."""

    prompt_usd: Dollars = msgspec.field(default="", name="promptUSD")
    """Price of one million input tokens in US dollars."""
    completion_usd: Dollars = msgspec.field(default="", name="completionUSD")
    """Price of one million output tokens in US dollars."""


class Backend(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A backend that can answer requests."""

    name: Name
    """Name by which rules refer to the backend."""
    inference_service_ref: Annotated[ServiceName, Meta(extra_json_schema=ATOMIC)] | None = None
    """InferenceService in the router's namespace that answers the requests."""
    display_name: str = ""
    """Model ID that BackendNameMatch compares with the model of a request. If it is empty or not a valid model ID, name
    is compared."""
    external: External | None = None
    """A provider outside the cluster, instead of an InferenceService. Routers with an external backend are rejected."""
    tier: Tier = "local"
    """Location of the backend. Rules for sensitive data must not use backends of the tier cloud."""
    capabilities: tuple[str, ...] = ()
    """Capabilities of the backend, which rules can require in requiredCapabilities."""
    weight: Annotated[int, Meta(ge=0, extra_json_schema=INT32)] | None = None
    """Share of requests with the strategy weighted, relative to other backends. Empty means 1."""
    timeout: str = ""
    """Maximum time until the backend begins to answer, as a Go duration such as 30s. The timeout of a rule takes
    precedence."""
    health_check: HealthCheck | None = None
    """Health check of the backend. It has no effect."""
    cost_per_million_tokens: Cost | None = None
    """Prices of the backend in US dollars per million tokens. They have no effect."""


class Match(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Requests that a rule applies to. All conditions must match."""

    models: tuple[str, ...] = ()
    """Model IDs, or patterns with * and ?. IDs become aliases of the router. Patterns select among the router's ID and
    aliases."""
    headers: dict[str, str] = {}
    """Required value of each header."""
    data_classification: tuple[str, ...] = ()
    """Allowed values of the header with the class of the request."""
    task_complexity: Literal["simple", "moderate", "complex"] | None = None
    """Required value of the header x-llmkube-task-complexity."""
    required_capabilities: tuple[str, ...] = ()
    """Capabilities that a backend must have. The rule skips backends without them."""
    latency_slo_ms: Positive | None = msgspec.field(default=None, name="latencySLOMs")
    """Target for the time to first token in milliseconds. Routers with this field are rejected."""


class Action(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Backends for the requests of a rule."""

    backends: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Names of backends, in order of preference."""
    strategy: Literal["primary-fallback", "weighted", "shadow"] = "primary-fallback"
    """primary-fallback uses the next backend if one fails before it begins to answer. weighted distributes requests by
    weight. Routers with shadow are rejected."""


class RouterRule(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A rule that selects backends for some of the requests."""

    name: Name
    """Name of the rule."""
    match: Match = Match()
    """Requests that the rule applies to. Empty means all requests."""
    route: Action
    """Backends for requests that match the rule."""
    fail_closed: bool = False
    """If true, a request that matches the rule fails if all backends of the rule fail. Later rules and defaultRoute do
    not apply to it."""
    timeout: str = ""
    """Maximum time until a backend begins to answer, as a Go duration such as 30s. It takes precedence over the timeout
    of the backend."""


class Classification(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Classification of a request's data."""

    mode: Literal["header-only", "detector", "hybrid"] = "header-only"
    """header-only reads the class of a request from a header. Routers with another mode are rejected."""
    header_key: str = ""
    """Name of the header with the class of the request. Empty means x-llmkube-classification."""
    sensitive_classifications: tuple[str, ...] | None = None
    """Classes whose rules must be failClosed and use only backends of the tier local. Unset means pii and phi."""


class AuditLog(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Audit log of LLMKube's proxy. It has no effect, because the gateway has an access log. The condition FieldsUsed
    reports this."""

    sink: Literal["stdout", "file", "otlp"] = "stdout"
    """Destination of the log."""
    file_path: str = ""
    """Path of the log file."""
    include_request_body: bool = False
    """If true, the log contains request bodies."""


class Budget(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Spending limit. Routers with a budget are rejected."""

    name: Name
    """Name of the budget."""
    scope: Literal["router", "rule", "team"]
    """Requests that count towards the budget."""
    rule_name: str = ""
    """Name of the rule, for the scope rule."""
    header_key: str = ""
    """Header with the name of the team, for the scope team."""
    max_tokens: Annotated[int, Meta(ge=1, extra_json_schema=INT64)] | None = None
    """Maximum number of tokens in the time window."""
    max_usd: Dollars = msgspec.field(default="", name="maxUSD")
    """Maximum amount in US dollars in the time window."""
    window_seconds: Positive = 3600
    """Time window in seconds."""


class JwtAuth(msgspec.Struct, frozen=True, kw_only=True):
    """JSON Web Token that requests must have."""

    provider: Required
    """Name of the identity provider."""
    issuer: Required
    """URL of the token issuer."""
    jwks_uri: Required = msgspec.field(name="jwksURI")
    """URL of the issuer's public keys."""
    team_claim: Required = msgspec.field(name="teamClaim")
    """Claim of the token with the name of the team."""
    header_key: str = msgspec.field(default="", name="headerKey")
    """Header that receives the name of the team."""


class TeamAllowlist(msgspec.Struct, frozen=True, kw_only=True):
    """Models that a team may use."""

    team: Required
    """Name of the team."""
    models: tuple[str, ...] = ()
    """Models that the team may use. Empty means all models."""


class Auth(msgspec.Struct, frozen=True, kw_only=True):
    """Authentication with tokens. If dataPlane is Gateway, routers with this setting are rejected. If it is Proxy, this
    setting has no effect."""

    jwt: JwtAuth | None = None
    """JSON Web Token that requests must have."""
    allowlists: tuple[TeamAllowlist, ...] = ()
    """Models that each team may use."""


class Policy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Settings for all rules."""

    classification: Classification = Classification()
    """Classification of a request's data."""
    budgets: tuple[Budget, ...] = ()
    """Spending limits. Routers with a budget are rejected."""
    audit_log: AuditLog | None = None
    """Audit log of LLMKube's proxy. It has no effect."""
    auth: Auth | None = None
    """Authentication with tokens. If dataPlane is Gateway, routers with this setting are rejected. If it is Proxy, this
    setting has no effect."""


class Proxy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Settings of LLMKube's proxy. Slipway has no proxy, so only responseHeaderTimeout has an effect."""

    replicas: Annotated[int, Meta(ge=1, le=10, extra_json_schema=INT32)] | None = None
    """Number of proxy pods."""
    image: str = ""
    """Image of the proxy."""
    image_pull_secrets: tuple[Annotated[SecretName, Meta(extra_json_schema=ATOMIC)], ...] = ()
    """Secrets with credentials for the image registry."""
    node_selector: dict[str, str] = {}
    """Labels of the nodes that may run the proxy."""
    resources: Annotated[Object, core("ResourceRequirements")] | None = None
    """Resource requests and limits of the proxy pods."""
    revision_history_limit: Annotated[int, Meta(ge=0, extra_json_schema=INT32)] | None = None
    """Number of old ReplicaSets to keep."""
    quarantine_duration: str = ""
    """Time during which a failed backend is skipped."""
    response_header_timeout: str = ""
    """Maximum time until a backend begins to answer, as a Go duration such as 30s. The timeouts of rules and backends
    take precedence."""


class RouterEndpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Kubernetes Service of LLMKube's proxy. It has no effect, because the gateway serves the router's model ID."""

    port: Port = 8080
    """Port of the Kubernetes Service."""
    path: str = "/v1/chat/completions"
    """Path at the end of status.endpoint."""
    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """Type of the Kubernetes Service."""
    node_port: Annotated[int, Meta(ge=30000, le=32767, extra_json_schema=INT32)] | None = None
    """Node port of the Kubernetes Service."""
    gateway: Gateway | None = None
    """Additional model ID at a Gateway. It has no effect."""


class McpServer(msgspec.Struct, frozen=True, kw_only=True):
    """MCP server of LLMKube's proxy."""

    enabled: bool = False
    """Enables the MCP server. Routers that enable it are rejected."""


class ModelRouterSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Backends, and the rules that select them."""

    data_plane: Literal["Proxy", "Gateway"] = "Proxy"
    """Data plane of LLMKube. Slipway's gateway routes the requests with either value."""
    gateway_ref: GatewayName | None = None
    """Gateway for the data plane Gateway. This field has no effect, because Slipway's gateway routes the requests."""
    backends: Annotated[tuple[Backend, ...], Meta(min_length=1)]
    """Backends that can answer requests."""
    rules: tuple[RouterRule, ...] = ()
    """Routing rules. The first matching rule selects the backends. If all of them fail and the rule is not failClosed,
    the next matching rule applies, and finally defaultRoute."""
    default_route: str = ""
    """Name of the backend for requests that no rule answers. Empty means that the gateway rejects these requests with
    403."""
    default_route_strategy: Literal["Static", "BackendNameMatch"] = "Static"
    """BackendNameMatch sends a request that matches no rule to the backend whose displayName or name is the requested
    model, if any. These names become aliases of the router."""
    policy: Policy = Policy()
    """Settings for all rules."""
    proxy: Proxy = Proxy()
    """Settings of LLMKube's proxy. Slipway has no proxy, so only responseHeaderTimeout has an effect."""
    endpoint: RouterEndpoint | None = None
    """Kubernetes Service of LLMKube's proxy. It has no effect, because the gateway serves the router's model ID."""
    mcp_server: McpServer = McpServer()
    """MCP server of LLMKube's proxy. Routers that enable it are rejected."""


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
    """Reason why no pod of the backend is ready."""
    last_probe_time: Time | UnsetType = UNSET
    """Never set, because backends are not probed."""


class BudgetStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Observed spending. Never set, because routers with a budget are rejected."""

    name: str
    """Name of the budget."""
    tokens_used: Number64 | UnsetType = UNSET
    """Number of tokens that requests have used."""
    usd_used: str | UnsetType = msgspec.field(default=UNSET, name="usdUsed")
    """Amount in US dollars that requests have cost."""
    utilization: str | UnsetType = UNSET
    """Fraction of the budget that has been used."""


class RouterGatewayStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """State of LLMKube's Gateway. Never set."""

    endpoint: str | UnsetType = UNSET
    """URL of the Gateway."""
    model_name: str | UnsetType = UNSET
    """Model ID that the Gateway routes to the ModelRouter."""
    route_ready: bool | UnsetType = UNSET
    """True if the Gateway has the route."""
    auth_enabled: bool | UnsetType = UNSET
    """True if the Gateway validates tokens."""


class ModelRouterStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Observed state of the router."""

    phase: Literal["Pending", "Provisioning", "Ready", "Degraded", "Failed"] | UnsetType = UNSET
    """Ready means that all backends answer, Degraded that only some do, and Pending that none does yet. Failed means
    that the router is rejected."""
    endpoint: str | UnsetType = UNSET
    """Never set. Send requests to the gateway, with the router's name as the model."""
    active_rules: Count | UnsetType = UNSET
    """Number of rules that requests can match."""
    backends: tuple[BackendStatus, ...] | UnsetType = UNSET
    """Observed state of each backend."""
    budget_utilization: tuple[BudgetStatus, ...] | UnsetType = UNSET
    """Observed spending. Never set, because routers with a budget are rejected."""
    gateway: RouterGatewayStatus | UnsetType = UNSET
    """State of LLMKube's Gateway. Never set."""
    last_updated: Time | UnsetType = UNSET
    """Time of the last change of this status."""
    model_id: str | UnsetType = UNSET
    """Model ID that clients send. Missing if the gateway does not serve the router."""
    observed_generation: Number64 | UnsetType = UNSET
    """The spec generation that this status describes."""
    conditions: Annotated[tuple[Condition, ...], Meta(extra_json_schema=CHECKED)] | UnsetType = UNSET
    """Conditions Accepted, Available, Routed, BackendsReady and FieldsUsed, and the summary conditions Ready,
    Reconciling and Stalled."""


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
