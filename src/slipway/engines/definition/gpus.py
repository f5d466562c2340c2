"""GPUs: makes an engine exit if it cannot open its GPUs, instead of silently using the CPU. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from slipway.engines.definition.flags import flag_names
from slipway.kube.objects import Object
from slipway.serving.containers.devices import SHARED, device_resources

MOST = 16
"""Maximum number of GPUs per container to name."""


class Devices(msgspec.Struct, frozen=True, kw_only=True):
    """The setting that names the GPUs which an engine must use."""

    variable: str = ""
    """Variable with a comma-separated list of names. Empty: the engine has no such variable, or exits on its own."""
    flags: tuple[str, ...] = ()
    """Flags of an author that take precedence."""
    names: Mapping[str, str] = {}
    """Word in the image tag -> prefix of device names, followed by their number."""


def named(container: Object, devices: Devices) -> tuple[Object, ...]:
    """Returns the variable for a container, if its GPUs are AMD's or Intel's and its image tag has a known word."""
    tag = str(container.get("image", "")).partition("@")[0].rsplit("/", 1)[-1].partition(":")[2].lower()
    name = next((name for word, name in devices.names.items() if word in re.split(r"[-_.]", tag)), "")
    number = _number(device_resources(container))
    env_names = {str(one.get("name")) for one in container.get("env") or ()}
    words: Sequence[str] = [str(word) for word in container.get("args") or ()]
    if not name or not 0 < number <= MOST or devices.variable in env_names or flag_names(words) & {*devices.flags}:
        return ()
    return ({"name": devices.variable, "value": ",".join(f"{name}{index}" for index in range(number))},)


def _number(resources: Mapping[str, str]) -> int:
    """Returns the number of GPUs; 0 if unknown, for example for device files shared by several programs."""
    amounts = [amount for name, amount in resources.items() if not name.startswith(SHARED)]
    return int(amounts[0]) if len(amounts) == 1 and re.fullmatch(r"[0-9]{1,3}", amounts[0]) else 0
