"""HAProxy's public frontend: the rules for every request, in the order in which HAProxy applies them. Pure."""

from __future__ import annotations

from slipway.gateway import errors
from slipway.gateway.haproxy.config.bodies import body_rules
from slipway.gateway.haproxy.config.maps import PATHS_MAP
from slipway.gateway.haproxy.config.model_rules import endpoint_rules, hold_rules, route_rules
from slipway.gateway.rules import connections, cors, jwt, limits, rewrite, targets, tokens
from slipway.gateway.rules import page as access
from slipway.gateway.settings import Settings, split_address

_RESERVED_HEADERS = r"cookie|http2-settings|keep-alive|proxy-.*|te|upgrade|x-request-id|x-slipway-.*"
"""Regular expression for the names of client headers that the gateway removes. Only the gateway sets the cookie, which
selects the endpoint, and ``x-slipway-`` headers, which direct requests between its own sections."""
_PROXY_HEADERS = r"forwarded|x-forwarded-.*|x-real-ip"
"""Regular expression for the names of headers that the gateway accepts only from trusted proxies."""
LOG_FORMAT = (
    "\"%{+json}o %(time)[accept_date(ms),ms_utime('%Y-%m-%dT%H:%M:%S.%3NZ')] %(request_id)[var(txn.id)] %(client)ci"
    " %(method)HM %(path)HPO %(model)[var(txn.shown)] %(key)[var(txn.key)] %(status:sint)ST %(bytes_in:sint)U"
    " %(bytes_out:sint)B %(duration_ms:sint)Ta %(first_byte_ms:sint)Tr %(backend)[var(txn.be)] %(server)s"
    ' %(retries:sint)rc %(hold)[var(txn.hold)] %(end)ts"'
)


def public_frontend(settings: Settings) -> str:
    parts = (
        _listener(settings),
        f"    log-format {tokens.log_format(LOG_FORMAT.replace('txn.key', jwt.holder_variable(settings)), settings)}",
        *tokens.filter_lines(settings),
        connections.track_connections(settings),
        _path_rules(settings),
        _health_rules(settings),
        _request_id_rules(),
        *cors.rules(settings),
        _path_alias_rules(settings),
        connections.track_streams(settings),
        *((access.before_keys(),) if settings.ui else ()),
        limits.HANDSHAKE,
        _key_rules(settings),
        *((access.after_keys(),) if settings.ui else ()),
        _method_rules(),
        *limits.rules(settings),
        _header_rules(settings),
        body_rules(settings),
        *tokens.rules(settings),
        route_rules(settings),
        hold_rules(settings.run_directory),
        limits.drop_keys(),
        endpoint_rules(),
        _backend_rules(settings),
    )
    return "\n\n".join(parts)


def _listener(settings: Settings) -> str:
    return f"""\
frontend public from base
    bind {_bind_address(settings)}
    maxconn {connections.client_limit(settings)}
    log global
    option dontlognull"""


def _bind_address(settings: Settings) -> str:
    """Return the arguments of HAProxy's ``bind`` line. Without a host, or with the host ``::``, one socket accepts IPv4
    and IPv6."""
    host, port = split_address(settings.listen)
    return f"{host}:{port}" if host not in ("", "::") else f":::{port} v4v6"


def _header_rules(settings: Settings) -> str:
    """Return the rules that remove hop-by-hop headers, headers of the gateway, and headers that only trusted proxies
    may set. They end the processing of requests for paths without a model."""
    # One regular expression costs a quarter of the CPU time of one rule per name.
    dropped = f"    http-request del-header ^({_RESERVED_HEADERS}|{_PROXY_HEADERS})$ -m reg"
    if settings.trusted_proxies:
        dropped = f"""\
    http-request del-header ^({_RESERVED_HEADERS})$ -m reg
    http-request del-header ^({_PROXY_HEADERS})$ -m reg unless trusted
    # Limits for each client, and the access log, use the address of the client behind the proxy.
    http-request set-src req.hdr_ip(x-forwarded-for,-1) if trusted {{ req.hdr_ip(x-forwarded-for,-1) -m found }}"""
    return f"""\
    http-request set-var(txn.upgrade) req.fhdr(upgrade) unless known
    http-request lua.drop_named if {{ req.fhdr(connection) -m found }}
{dropped}
    http-request allow unless known
    option forwardfor if-none"""


def _path_rules(settings: Settings) -> str:
    """Return the rules that set ``txn.kind`` to the number of the path. It stays unset for paths without a model.

    These rules come first, so that all later rules for paths without a model only test one variable.
    """
    return f"""\
    http-request set-var(txn.kind) {_path_number(settings)}
    acl known var(txn.kind) -m found"""


def _path_number(settings: Settings) -> str:
    return f"path,map_str_int({settings.run_directory}/{PATHS_MAP})"


def _health_rules(settings: Settings) -> str:
    return f"""\
    acl probe path /healthz /readyz
    http-request set-log-level silent if !known probe
    acl ready str(ready),map_str({settings.run_directory}/state.map) -m found
    http-request return status 503 content-type text/plain string "not ready" if !known {{ path /readyz }} !ready
    http-request return status 200 content-type text/plain string ok if !known probe"""


def _request_id_rules() -> str:
    # unique-id-header writes the header, because set-header needs several times the instructions.
    return """\
    acl proper_id req.fhdr(x-request-id) -m reg '^[A-Za-z0-9._:=+/-]{1,128}\\z'
    http-request set-var(txn.id) req.fhdr(x-request-id) if proper_id
    http-request set-var(txn.id) uuid() unless { var(txn.id) -m found }
    unique-id-format %[var(txn.id)]
    unique-id-header x-request-id
    http-after-response set-header x-request-id %[var(txn.id)] if { var(txn.id) -m found }"""


def _key_rules(settings: Settings) -> str:
    if not settings.api_keys_secret:
        return "    # No API keys are required."
    return limits.identify(settings)


def _path_alias_rules(settings: Settings) -> str:
    """Return the rules that replace aliases of paths. They precede the first error, because the path decides the
    format of errors."""
    return f"""\
    http-request set-path %[path,regsub(^/openai,)] if !known {{ path_beg /openai/v1/ }}
    http-request set-var(txn.kind) {_path_number(settings)} unless known
    http-request set-var(txn.leads) str(control) if !known {{ path /v1/models }} || !known {{ path_beg /v1/models/ }}
    http-request lua.other_path if !known !{{ var(txn.leads) -m found }}"""


def _method_rules() -> str:
    return f"""\
    http-request {errors.return_rule(errors.WRONG_METHOD)} if !{{ method POST }} known
    http-request lua.refuse_path unless known
    http-request allow if !known {{ var(txn.leads) -m str control }}"""


def _backend_rules(settings: Settings) -> str:
    page = "    use_backend control if page\n" if settings.ui else ""
    return f"""\
{page}    use_backend %[var(txn.leads)] unless known
    use_backend successor if {{ var(txn.hold) -m str moved }}
    use_backend turns if {targets.ROUTED}
    use_backend rewrite if {rewrite.CHANGED}
    use_backend %[var(txn.be)]"""
