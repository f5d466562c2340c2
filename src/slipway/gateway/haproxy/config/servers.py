"""The backend of a model, and its servers. Pure."""

from __future__ import annotations

from slipway.gateway.routing.balancing import server_name
from slipway.gateway.routing.table import Backend
from slipway.gateway.rules import fallback_server
from slipway.gateway.settings import Settings

MODEL_DEFAULTS = "model"
"""Name of the ``defaults`` section of every model's backend."""
UNSHARED = "txn.alone"
"""Variable that is unique to a request which must not take an idle connection; unset for those that may."""
_CONNECTION_NAME = f"var(txn.attempt,0),add(1),set-var(txn.attempt),concat(-,{UNSHARED})"
"""HAProxy evaluates this name for each attempt. Requests share idle connections of the same name. All idle connections
of a server die with it, so a retry must not use another of them, or all retries may fail before one connects."""


def server(endpoint: str) -> str:
    """Address and options of an endpoint's server, in the file as on the command line."""
    return f"{endpoint} cookie {server_name(endpoint)} pool-conn-name {_CONNECTION_NAME} {fallback_server.CHECK}"


def servers(run_directory: str, backend: Backend) -> dict[str, str]:
    """Address and options of a backend's servers, by their names."""
    last = {fallback_server.NAME: f"{fallback_server.server(run_directory)} backup"}
    return {server_name(endpoint): server(endpoint) for endpoint in backend.endpoints} | last


def backend_section(settings: Settings, backend: Backend) -> str:
    """Section of one model's backend."""
    lines = [f"    server {name} {text}" for name, text in servers(settings.run_directory, backend).items()]
    return "\n".join([f"backend {backend.name} from {MODEL_DEFAULTS}", *lines, ""])
