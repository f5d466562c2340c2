"""The complete text of haproxy.cfg, rendered from the settings and the routing table. Pure.

Only the backends at the end of haproxy.cfg, and the maps, depend on the cluster. The control process can change both at
run time, so HAProxy reads haproxy.cfg only at startup. Backends created at run time inherit the section ``model``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from slipway.gateway.haproxy.config.frontend import public_frontend
from slipway.gateway.haproxy.config.hops import internal_sections
from slipway.gateway.haproxy.config.process import defaults_sections, global_section
from slipway.gateway.haproxy.config.servers import backend_section
from slipway.gateway.routing.table import RoutingTable
from slipway.gateway.rules import jwt
from slipway.gateway.rules.jwks import VerificationKey
from slipway.gateway.settings import Settings


def configuration(settings: Settings, table: RoutingTable, keys: Sequence[VerificationKey] = ()) -> str:
    """Return the text of haproxy.cfg. Equal input gives equal text. ``keys`` are the public keys that verify
    tokens."""
    backends = (backend_section(settings, backend) for backend in table.backends.values())
    return "\n".join([_static(settings), *jwt.certificates(settings, keys), *backends, ""])


def version(settings: Settings) -> str:
    """Return a hash of the static part of haproxy.cfg. The running HAProxy has its hash in a variable."""
    return hashlib.sha256(_sections(settings).encode()).hexdigest()[:16]


def _static(settings: Settings) -> str:
    return _sections(settings).replace("@VERSION@", version(settings))


def _sections(settings: Settings) -> str:
    sections = (global_section, defaults_sections, public_frontend, internal_sections)
    return "\n\n".join(section(settings) for section in sections) + "\n"
