"""The whole text of haproxy.cfg: settings and table in, configuration out. Pure.

The parts that change with the cluster are maps and the backends at the end. Both can also be changed at run time, so
HAProxy reads this text only when it starts. Backends created at run time inherit the section ``model``.
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
    """The whole file. Equal input gives equal text. `keys` verify tokens."""
    backends = (backend_section(settings, backend) for backend in table.backends.values())
    return "\n".join([_static(settings), *jwt.certificates(settings, keys), *backends, ""])


def version(settings: Settings) -> str:
    """Changes when the static part changes; HAProxy carries it in a variable."""
    return hashlib.sha256(_sections(settings).encode()).hexdigest()[:16]


def _static(settings: Settings) -> str:
    return _sections(settings).replace("@VERSION@", version(settings))


def _sections(settings: Settings) -> str:
    sections = (global_section, defaults_sections, public_frontend, internal_sections)
    return "\n\n".join(section(settings) for section in sections) + "\n"
