"""Optional paths: paths that an engine serves only if an argument or an environment variable enables them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from slipway.engines.definition.flags import flag_names
from slipway.serving.pods.server import Container


class Switches(msgspec.Struct, frozen=True, kw_only=True):
    """Flags and environment variables that enable a path. One of them is enough."""

    flags: frozenset[str]
    variables: frozenset[str]

    def enable(self, container: Container) -> bool:
        """Whether the container may enable the path. A Secret or ConfigMap with environment variables counts, because
        it may contain any of them."""
        names = {str(variable.get("name")) for variable in container.env}
        return bool(container.env_from or self.flags & flag_names(container.args) or self.variables & names)


def disabled(container: Container, optional: Mapping[str, Switches]) -> frozenset[str]:
    """Return the paths in ``optional`` that no flag or environment variable of the container can enable."""
    return frozenset(path for path, switches in optional.items() if not switches.enable(container))
