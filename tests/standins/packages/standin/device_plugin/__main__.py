"""``python3 -m standin.device_plugin VENDOR`` registers the node's devices, anew when the kubelet or they change."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import yaml

from .hardware import FILE, Devices, DriverError, fails_beyond_one, hardware, resources
from .server import Plugin

FOLDER = Path("/var/lib/kubelet/device-plugins")
SECONDS = 0.5
"""Between two looks at the kubelet's socket and the node's file."""


def offered(vendor: str, folder: Path, settings: Mapping[str, Any]) -> dict[str, Devices]:
    file = folder / FILE
    machine = hardware(file.read_text() if file.exists() else "{}")
    if vendor == "nvidia":
        return resources(machine, settings)
    return {"amd.com/gpu": resources(machine, {})["nvidia.com/gpu"]}


def birth(folder: Path) -> float:
    """When the kubelet made its socket; it makes a new one each time it starts, and forgets every plugin."""
    socket = folder / "kubelet.sock"
    return socket.stat().st_ctime if socket.exists() else 0.0


def serve(vendor: str, folder: Path, settings: Mapping[str, Any], stopped: threading.Event) -> None:
    variable = "NVIDIA_VISIBLE_DEVICES" if vendor == "nvidia" else "AMD_VISIBLE_DEVICES"
    plugins: dict[str, Plugin] = {}
    offer: dict[str, Devices] = {}
    born = 0.0
    while not stopped.is_set():
        # The file may be half written: then what it said before holds for a moment longer.
        with suppress(JSONDecodeError):
            offer = offered(vendor, folder, settings)
        if birth(folder) != born or offer.keys() != plugins.keys():
            for plugin in plugins.values():
                plugin.stop()
            born = birth(folder)
            plugins = {
                resource: Plugin(folder, resource, devices, variable=variable, only_one=fails_beyond_one(settings))
                for resource, devices in offer.items()
            }
            for plugin in plugins.values():
                plugin.start()
                print(f"registered {plugin.resource} with {len(plugin.devices)} devices", flush=True)
        for resource, devices in offer.items():
            if devices != plugins[resource].devices:
                plugins[resource].tell(devices)
                print(f"{resource}: {devices}", flush=True)
        stopped.wait(SECONDS)
    for plugin in plugins.values():
        plugin.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("vendor", choices=["nvidia", "amd"])
    parser.add_argument("--folder", type=Path, default=FOLDER)
    # The flags of the real one say nothing here.
    options, _flags = parser.parse_known_args()
    file = os.environ.get("CONFIG_FILE")
    settings = yaml.safe_load(Path(file).read_text()) if file else {}
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_about: stopped.set())
    try:
        serve(options.vendor, options.folder, settings, stopped)
    except DriverError as error:
        print(f"error starting plugins: {error}", file=sys.stderr, flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
