"""Internal sections of haproxy.cfg: the stick tables, and the backends and frontends through which a request returns to
HAProxy. Such a return is a hop. Pure."""

from __future__ import annotations

from slipway.gateway.haproxy.config.bodies import BODIES_TABLE, LARGE, REPEATABLE_BYTES
from slipway.gateway.haproxy.config.model_rules import (
    AFTER_HOLD,
    LAST_RULES,
    TTFB_TABLE,
    lacks_condition,
    session_hold_rules,
)
from slipway.gateway.haproxy.config.process import public_address
from slipway.gateway.rules import connections, fallback_server, limits, query_models, rewrite, targets, tokens
from slipway.gateway.settings import Settings
from slipway.serving.routing import paths


def internal_sections(settings: Settings) -> str:
    lacking = lacks_condition(settings.run_directory, "txn.asked")
    hold = session_hold_rules(settings.run_directory)
    host, port = public_address(settings)
    return f"""\
# The control process, which serves the model list.
backend control from base
    http-request del-header {limits.HEADERS} -m reg
{limits.key_header(settings)}    server control unix@{settings.run_directory}/control.sock

# The process that now listens on the public port, for requests that were waiting here when a reload replaced this one.
backend successor from base
    server successor {host}:{port}

{rewrite.sections(settings, LARGE + LAST_RULES)}

{query_models.sections(settings, hold, lacking, LARGE + LAST_RULES, REPEATABLE_BYTES)}

{fallback_server.sections(settings, AFTER_HOLD, LARGE + LAST_RULES)}

{_turn_sections(settings)}

backend {TTFB_TABLE} from base
    stick-table type string len 128 size 20k store gpc(2)

{connections.tables()}

backend {BODIES_TABLE} from base
    stick-table type string len 36 size 100k expire 10s store conn_cur,gpc0
{limits.sections(settings)}{tokens.tables(settings)}"""


def _turn_sections(settings: Settings) -> str:
    run = settings.run_directory
    reading = f"""\
    acl form var(txn.kind) -m int ge {paths.FIRST_FORM}
    http-request lua.read_form if form"""
    last_rules = f"{rewrite.rules(run)}\n{LARGE}{LAST_RULES}"
    return targets.sections(settings, reading, AFTER_HOLD, last_rules, rewrite.CHANGED)
