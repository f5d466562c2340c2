"""Entry point of the container image. Each process runs one command, such as ``slipway controller``."""

from __future__ import annotations

import importlib
import sys

from slipway import __version__

COMMANDS = {
    "controller": ("slipway.controller.main", "reconcile model resources into Deployments and Services"),
    "gateway": ("slipway.gateway.main", "configure HAProxy, which routes OpenAI requests to the models"),
    "loader": ("slipway.loader.main", "download model files, and load adapters into engines"),
    "hub": ("slipway.hub.main", "serve model files over the Hugging Face protocol, for closed networks"),
    "depot": ("slipway.depot.main", "sign tokens for the artifact registry, and accept uploads"),
    "crds": ("slipway.apis.crds", "write the CustomResourceDefinitions to a directory"),
    "apis": ("slipway.apis.collection", "write the Ansible collection's data about the APIs"),
    "engines": ("slipway.engines.main", "write the monitoring queries of the engines to a file"),
}
"""Command -> (module with ``main(argv) -> exit status``, description). A process imports only the module of its
command."""


def usage() -> str:
    """Return the output of ``slipway --help``."""
    lines = ["usage: slipway [--version] COMMAND [OPTIONS]", "", "commands:"]
    lines += [f"  {name:<11} {purpose}" for name, (_module, purpose) in COMMANDS.items()]
    return "\n".join([*lines, "", "'slipway COMMAND --help' describes the options of a command.", ""])


def main() -> int:
    """Run the command in ``sys.argv`` and return its exit status, which is 2 if the command does not exist. Without a
    command, print the usage and return 0."""
    command, arguments = (sys.argv[1] if len(sys.argv) > 1 else "--help"), sys.argv[2:]
    if command == "--version":
        sys.stdout.write(f"{__version__}\n")
        return 0
    if command in ("-h", "--help"):
        sys.stdout.write(usage())
        return 0
    if command not in COMMANDS:
        sys.stderr.write(f"slipway: unknown command {command!r}\n\n{usage()}")
        return 2
    status: int = importlib.import_module(COMMANDS[command][0]).main(arguments)
    return status


if __name__ == "__main__":
    sys.exit(main())
