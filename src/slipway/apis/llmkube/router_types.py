"""The ModelRouter kind of LLMKube: one id of which rules decide who answers. The CustomResourceDefinition is made from
this module."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from slipway.apis.llmkube.model_types import ATOMIC, INT32, INT64, Number64, SecretName, Time
from slipway.apis.llmkube.operation_types import Gateway, GatewayName
from slipway.apis.llmkube.service_types import Count, Port
from slipway.kube.conditions import CHECKED, Condition
from slipway.kube.core import core
from slipway.kube.crd import Column, CustomResource
from slipway.kube.objects import Kind, Object

KIND = Kind(group="inference.llmkube.dev", version="v1alpha1", kind="ModelRouter", plural="modelrouters")

Dollars = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?$")]
Name = Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9-]{0,62}$")]
Required = Annotated[str, Meta(min_length=1)]
Positive = Annotated[int, Meta(ge=1, extra_json_schema=INT32)]
Tier = Literal["local", "cloud"]


class ServiceName(msgspec.Struct, frozen=True):
    """Names an InferenceService of the router's namespace."""

    name: Annotated[str, Meta(extra_json_schema={"default": ""})] = ""
    """Name of the InferenceService."""


class External(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A provider outside of the cluster. A router with one is refused."""

    provider: Literal["anthropic", "openai", "bedrock", "vertex_ai", "litellm"]
    """Whose API it is."""
    model: str
    """The provider's name of the model."""
    url: str = ""
    """Where the API is."""
    credentials_secret_ref: Annotated[SecretName, Meta(extra_json_schema=ATOMIC)] | None = None
    """Secret with the provider's keys."""


class HealthCheck(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a backend is probed. It has no effect, as the condition FieldsUsed says: readiness is the pods' own."""

    path: str = ""
    """Path that is asked."""
    interval_seconds: Positive = 10
    """Seconds between two probes."""
    timeout_seconds: Positive = 2
    """Seconds that a probe may take."""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars for a million tokens. They have no effect, as the condition FieldsUsed says."""

    prompt_usd: Dollars = msgspec.field(default="", name="promptUSD")
    """Of the input."""
    completion_usd: Dollars = msgspec.field(default="", name="completionUSD")
    """Of the output."""


class Backend(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Somebody who may answer."""

    name: Name
    """The name that rules use."""
    inference_service_ref: Annotated[ServiceName, Meta(extra_json_schema=ATOMIC)] | None = None
    """An InferenceService of the router's namespace."""
    display_name: str = ""
    """Name that BackendNameMatch compares with a request's model, if it can be the ID of a model. Absent: name."""
    external: External | None = None
    """A provider outside of the cluster, in its place."""
    tier: Tier = "local"
    """cloud: rules for sensitive data must not name it."""
    capabilities: tuple[str, ...] = ()
    """What it can do, for requiredCapabilities of rules."""
    weight: Annotated[int, Meta(ge=0, extra_json_schema=INT32)] | None = None
    """Its share with the strategy weighted; 1 where it is absent."""
    timeout: str = ""
    """How long it may take to begin its answer, as a Go duration such as 30s, where a rule does not say."""
    health_check: HealthCheck | None = None
    """How it is probed."""
    cost_per_million_tokens: Cost | None = None
    """What it costs."""


class Match(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which requests a rule is for. All that is said has to hold."""

    models: tuple[str, ...] = ()
    """Ids, or patterns of them with * and ?. Ids become aliases of the router; patterns choose among its ids."""
    headers: dict[str, str] = {}
    """Values of headers."""
    data_classification: tuple[str, ...] = ()
    """Values of which the header of policy.classification has to have one."""
    task_complexity: Literal["simple", "moderate", "complex"] | None = None
    """Value of the header x-llmkube-task-complexity."""
    required_capabilities: tuple[str, ...] = ()
    """What a backend has to be able to do. Those of the rule that cannot are left out."""
    latency_slo_ms: Positive | None = msgspec.field(default=None, name="latencySLOMs")
    """A goal for the time to the first token. A router with one is refused."""


class Action(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who answers the requests that a rule is for."""

    backends: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Names of backends, in order."""
    strategy: Literal["primary-fallback", "weighted", "shadow"] = "primary-fallback"
    """primary-fallback: the next one where one fails before its answer begins. weighted: in shares. A router with
    shadow is refused."""


class RouterRule(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who answers some of the requests."""

    name: Name
    """Name of the rule."""
    match: Match = Match()
    """Which requests it is for; absent: all."""
    route: Action
    """Who answers them."""
    fail_closed: bool = False
    """Whether they go to nobody else when its backends fail."""
    timeout: str = ""
    """How long a backend may take to begin its answer, as a Go duration such as 30s."""


class Classification(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How the class of a request's data is known."""

    mode: Literal["header-only", "detector", "hybrid"] = "header-only"
    """header-only: by a header. A router with another mode is refused."""
    header_key: str = ""
    """Name of the header; x-llmkube-classification where it is absent."""
    sensitive_classifications: tuple[str, ...] | None = None
    """Classes whose rules have to be failClosed, with backends of the tier local only; pii and phi where it is
    absent."""


class AuditLog(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The original's log. It has no effect, as the condition FieldsUsed says: the gateway's access log has requests."""

    sink: Literal["stdout", "file", "otlp"] = "stdout"
    """Where it is written."""
    file_path: str = ""
    """The file."""
    include_request_body: bool = False
    """Whether it has bodies of requests."""


class Budget(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What may be spent. A router with one is refused."""

    name: Name
    """Name of the budget."""
    scope: Literal["router", "rule", "team"]
    """Whose requests count."""
    rule_name: str = ""
    """The rule."""
    header_key: str = ""
    """Header with the team."""
    max_tokens: Annotated[int, Meta(ge=1, extra_json_schema=INT64)] | None = None
    """Tokens."""
    max_usd: Dollars = msgspec.field(default="", name="maxUSD")
    """Dollars."""
    window_seconds: Positive = 3600
    """Seconds over which it is counted."""


class JwtAuth(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens that requests must have."""

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
    """The team."""
    models: tuple[str, ...] = ()
    """The models. Absent: all."""


class Auth(msgspec.Struct, frozen=True, kw_only=True):
    """Authentication by tokens. A router with it is refused if dataPlane is Gateway. With Proxy it has no effect, as in
    the original."""

    jwt: JwtAuth | None = None
    """Tokens that requests must have."""
    allowlists: tuple[TeamAllowlist, ...] = ()
    """Models that each team may use."""


class Policy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What holds for all rules."""

    classification: Classification = Classification()
    """How the class of a request's data is known."""
    budgets: tuple[Budget, ...] = ()
    """What may be spent."""
    audit_log: AuditLog | None = None
    """The original's log."""
    auth: Auth | None = None
    """Authentication by tokens."""


class Proxy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The original's proxy. There is none: the gateway routes."""

    replicas: Annotated[int, Meta(ge=1, le=10, extra_json_schema=INT32)] | None = None
    """Its pods."""
    image: str = ""
    """Its image."""
    image_pull_secrets: tuple[Annotated[SecretName, Meta(extra_json_schema=ATOMIC)], ...] = ()
    """Secrets for its image."""
    node_selector: dict[str, str] = {}
    """Labels that its nodes need."""
    resources: Annotated[Object, core("ResourceRequirements")] | None = None
    """What its pods ask for."""
    revision_history_limit: Annotated[int, Meta(ge=0, extra_json_schema=INT32)] | None = None
    """Old ReplicaSets that it keeps."""
    quarantine_duration: str = ""
    """How long a backend that failed is passed over."""
    response_header_timeout: str = ""
    """How long a backend may take to begin its answer, as a Go duration such as 30s, where neither a rule nor the
    backend says. The only field here that counts."""


class RouterEndpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The original's Service. There is none: the gateway has the router's id."""

    port: Port = 8080
    """Its port."""
    path: str = "/v1/chat/completions"
    """Path that status.endpoint ends with."""
    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """Its type."""
    node_port: Annotated[int, Meta(ge=30000, le=32767, extra_json_schema=INT32)] | None = None
    """Its port on every node."""
    gateway: Gateway | None = None
    """A further name at a Gateway."""


class McpServer(msgspec.Struct, frozen=True, kw_only=True):
    """The original's MCP server."""

    enabled: bool = False
    """Whether there is to be one. A router with it is refused."""


class ModelRouterSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who may answer, and which rules decide."""

    data_plane: Literal["Proxy", "Gateway"] = "Proxy"
    """The original's data plane. The gateway routes with either."""
    gateway_ref: GatewayName | None = None
    """The original's Gateway. It has no effect."""
    backends: Annotated[tuple[Backend, ...], Meta(min_length=1)]
    """Who may answer."""
    rules: tuple[RouterRule, ...] = ()
    """Who answers which requests: the first rule that is for one decides. Where its backends fail, the next one does,
    and defaultRoute at last, unless it is failClosed."""
    default_route: str = ""
    """Name of the backend that answers all others."""
    default_route_strategy: Literal["Static", "BackendNameMatch"] = "Static"
    """BackendNameMatch: a request that no rule is for goes to the backend named like its model, if there is one. The
    names of the backends become aliases of the router."""
    policy: Policy = Policy()
    """What holds for all rules."""
    proxy: Proxy = Proxy()
    """The original's proxy."""
    endpoint: RouterEndpoint | None = None
    """The original's Service."""
    mcp_server: McpServer = McpServer()
    """The original's MCP server."""


class BackendStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is known of a backend."""

    name: str
    """Its name."""
    address: str | UnsetType = UNSET
    """URL of the InferenceService."""
    tier: str | UnsetType = UNSET
    """Its tier."""
    healthy: bool | UnsetType = UNSET
    """Whether a pod of it answers."""
    message: str | UnsetType = UNSET
    """Why none does."""
    last_probe_time: Time | UnsetType = UNSET
    """Not written: nobody probes it."""


class BudgetStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was spent. Not written: a router with a budget is refused."""

    name: str
    """Name of the budget."""
    tokens_used: Number64 | UnsetType = UNSET
    """Tokens."""
    usd_used: str | UnsetType = msgspec.field(default=UNSET, name="usdUsed")
    """Dollars."""
    utilization: str | UnsetType = UNSET
    """Part of the budget."""


class RouterGatewayStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """State of the original's Gateway. Not written."""

    endpoint: str | UnsetType = UNSET
    """URL of the Gateway."""
    model_name: str | UnsetType = UNSET
    """Name of the model."""
    route_ready: bool | UnsetType = UNSET
    """Whether the Gateway has the route."""
    auth_enabled: bool | UnsetType = UNSET
    """Whether the Gateway checks tokens."""


class ModelRouterStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of the router."""

    phase: Literal["Pending", "Provisioning", "Ready", "Degraded", "Failed"] | UnsetType = UNSET
    """Ready: all backends answer. Degraded: some do. Pending: none does yet. Failed: it is refused."""
    endpoint: str | UnsetType = UNSET
    """Not written: requests go to the gateway, with the router's name as their model."""
    active_rules: Count | UnsetType = UNSET
    """Rules that requests can meet."""
    backends: tuple[BackendStatus, ...] | UnsetType = UNSET
    """What is known of each backend."""
    budget_utilization: tuple[BudgetStatus, ...] | UnsetType = UNSET
    """Not written."""
    gateway: RouterGatewayStatus | UnsetType = UNSET
    """Not written: status of the original's Gateway."""
    last_updated: Time | UnsetType = UNSET
    """When this status last changed."""
    model_id: str | UnsetType = UNSET
    """The ID that clients send. Missing if no ID leads to it."""
    observed_generation: Number64 | UnsetType = UNSET
    """Generation of the spec that this status speaks of."""
    conditions: Annotated[tuple[Condition, ...], Meta(extra_json_schema=CHECKED)] | UnsetType = UNSET
    """Accepted, Available, Routed, BackendsReady and FieldsUsed, each with a reason and a message."""


MODEL_ROUTER = CustomResource(
    kind=KIND,
    spec=ModelRouterSpec,
    status=ModelRouterStatus,
    description="One id at the gateway, of which rules decide who answers.",
    short_names=("mr",),
    columns=(
        Column("Phase", "string", ".status.phase"),
        Column("Endpoint", "string", ".status.endpoint"),
        Column("Rules", "integer", ".status.activeRules"),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
)
