"""The backend of a model, and its servers. Pure."""

from __future__ import annotations

from slipway.gateway.routing.balancing import server_name
from slipway.gateway.routing.table import Backend
from slipway.gateway.rules import fallback_server
from slipway.gateway.settings import Settings

MODEL_DEFAULTS = "model"
"""Name of the ``defaults`` section of every model's backend."""
UNSHARED = "txn.alone"
"""Variable with a unique value for requests that must not reuse an idle connection; unset for others."""
_CONNECTION_NAME = f"var(txn.attempt,0),add(1),set-var(txn.attempt),concat(-,{UNSHARED})"
"""Expression of a connection's name, which HAProxy evaluates for each attempt. Requests only reuse idle connections
with the same name. If a server dies, all its idle connections die with it. A retry must therefore not use another of
them, or all retries may fail before one opens a new connection."""


def server(endpoint: str) -> str:
    """Returns the address and options of an endpoint's server, for the configuration file and the command socket."""
    return f"{endpoint} cookie {server_name(endpoint)} pool-conn-name {_CONNECTION_NAME} {fallback_server.CHECK}"


def servers(run_directory: str, backend: Backend) -> dict[str, str]:
    """Returns the address and options of each server of a backend, by server name."""
    last = {fallback_server.NAME: f"{fallback_server.server(run_directory)} backup"}
    return {server_name(endpoint): server(endpoint) for endpoint in backend.endpoints} | last


def backend_section(settings: Settings, backend: Backend) -> str:
    """Returns the section of a model's backend."""
    lines = [f"    server {name} {text}" for name, text in servers(settings.run_directory, backend).items()]
    return "\n".join([f"backend {backend.name} from {MODEL_DEFAULTS}", *lines, ""])
