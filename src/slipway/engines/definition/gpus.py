"""GPUs: makes an engine exit if it cannot open its GPUs, instead of silently using the CPU. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from slipway.engines.definition.flags import flag_names
from slipway.kube.objects import Object
from slipway.serving.containers.devices import SHARED, device_resources

MOST = 16
"""Maximum number of GPUs in a container for which ``Devices.variable`` is set."""


class Devices(msgspec.Struct, frozen=True, kw_only=True):
    """The environment variable that lists the GPUs which an engine must use."""

    variable: str = ""
    """Name of the environment variable, whose value is a comma-separated list. Empty if the engine has no such
    variable, or exits without it."""
    flags: tuple[str, ...] = ()
    """Flags in an author's arguments that take precedence over the environment variable."""
    names: Mapping[str, str] = {}
    """Word in the image tag -> prefix of device names. The index of the GPU follows the prefix."""


def named(container: Object, devices: Devices) -> tuple[Object, ...]:
    """Return ``devices.variable`` with the GPUs of a container; empty if its image tag has no known word, its number of
    GPUs is 0, unknown or greater than ``MOST``, or the author already chose the devices."""
    tag = str(container.get("image", "")).partition("@")[0].rsplit("/", 1)[-1].partition(":")[2].lower()
    name = next((name for word, name in devices.names.items() if word in re.split(r"[-_.]", tag)), "")
    number = _number(device_resources(container))
    env_names = {str(one.get("name")) for one in container.get("env") or ()}
    words: Sequence[str] = [str(word) for word in container.get("args") or ()]
    if not name or not 0 < number <= MOST or devices.variable in env_names or flag_names(words) & {*devices.flags}:
        return ()
    return ({"name": devices.variable, "value": ",".join(f"{name}{index}" for index in range(number))},)


def _number(resources: Mapping[str, str]) -> int:
    """Return the number of GPUs of a container; 0 if it is unknown, for example for shared devices."""
    amounts = [amount for name, amount in resources.items() if not name.startswith(SHARED)]
    return int(amounts[0]) if len(amounts) == 1 and re.fullmatch(r"[0-9]{1,3}", amounts[0]) else 0
