"""Entry point of the one image: ``slipway controller|gateway|loader|hub|crds``, each a process of its own."""

from __future__ import annotations

import importlib
import sys

from slipway import __version__

COMMANDS = {
    "controller": ("slipway.controller.main", "reconciles model resources into Deployments and Services"),
    "gateway": ("slipway.gateway.main", "steers HAProxy, which routes OpenAI requests to the models"),
    "loader": ("slipway.loader.main", "brings model files into folders, and adapters to engines"),
    "hub": ("slipway.hub.main", "serves model files by the Hugging Face protocol, for closed networks"),
    "crds": ("slipway.apis.main", "writes the CustomResourceDefinitions into a folder"),
}
"""Command -> (module with ``main(argv) -> exit status``, what it does). Each process imports only its own."""


def usage() -> str:
    lines = [f"slipway {__version__}", "usage: slipway COMMAND [OPTIONS]", ""]
    lines += [f"  {name:<11} {purpose}" for name, (_module, purpose) in COMMANDS.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    command, arguments = (sys.argv[1] if len(sys.argv) > 1 else "--help"), sys.argv[2:]
    if command in ("-h", "--help", "--version"):
        sys.stdout.write(usage())
        return 0
    if command not in COMMANDS:
        sys.stderr.write(f"slipway: no command {command!r}\n\n{usage()}")
        return 2
    status: int = importlib.import_module(COMMANDS[command][0]).main(arguments)
    return status


if __name__ == "__main__":
    sys.exit(main())
