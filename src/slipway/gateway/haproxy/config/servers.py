"""The HAProxy backend of a model, and the backend's servers. Pure."""

from __future__ import annotations

from slipway.gateway.routing.balancing import server_name
from slipway.gateway.routing.table import Backend
from slipway.gateway.rules import fallback_server
from slipway.gateway.settings import Settings

MODEL_DEFAULTS = "model"
"""Name of the ``defaults`` section that every model's backend inherits."""
UNSHARED = "txn.alone"
"""HAProxy variable with a unique value for a request that must not reuse an idle connection; unset for other
requests."""
_CONNECTION_NAME = f"var(txn.attempt,0),add(1),set-var(txn.attempt),concat(-,{UNSHARED})"
"""HAProxy expression for the name of a connection, which is evaluated for each attempt.

Requests only reuse idle connections of the same name. If a server dies, all its idle connections break. If retries used
these connections, all retries could fail before one opens a new connection.
"""


def server(endpoint: str) -> str:
    """Return the address and options of an endpoint's server, as the configuration file and HAProxy's commands need
    them."""
    return f"{endpoint} cookie {server_name(endpoint)} pool-conn-name {_CONNECTION_NAME} {fallback_server.CHECK}"


def servers(run_directory: str, backend: Backend) -> dict[str, str]:
    """Return the address and options of each server of a backend, by the name of the server. The last one is the
    fallback server."""
    last = {fallback_server.NAME: f"{fallback_server.server(run_directory)} backup"}
    return {server_name(endpoint): server(endpoint) for endpoint in backend.endpoints} | last


def backend_section(settings: Settings, backend: Backend) -> str:
    """Return the section of a model's backend in haproxy.cfg."""
    lines = [f"    server {name} {text}" for name, text in servers(settings.run_directory, backend).items()]
    return "\n".join([f"backend {backend.name} from {MODEL_DEFAULTS}", *lines, ""])
