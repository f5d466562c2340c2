"""``slipway loader``: a command that downloads, describes and removes weights, changes the owners of directories,
manages an engine's adapters, summarizes benchmarks, and adds models to a registry or removes them.

The last line on standard error explains why the command ended. Errors and reports are also the container's termination
message.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from pathlib import Path
from urllib.parse import urlsplit

from slipway.artifacts.locations.redaction import redact_url
from slipway.loader.cli import registry_commands, report_commands
from slipway.loader.cli.termination import write_termination_message
from slipway.loader.disk.evict import evict
from slipway.loader.disk.folder import Folder
from slipway.loader.disk.owner import own, renew
from slipway.loader.download.transfer import Policy
from slipway.loader.transport.errors import LoadError, StoppedError
from slipway.serving.wire.agent import CONTROLLER_KEY, CONTROLLER_KEY_VARIABLE, POD_UID_VARIABLE, PORT

MOST_BYTES = 20 << 30
"""Default limit for the disk space of all adapters of a pod, in bytes."""
ENGINES = ("vllm", "sglang")
"""Engines that can load adapters at runtime."""
DONE, LATER, NEVER, STOPPED = 0, 1, 3, 128 + signal.SIGTERM
"""Exit statuses: success; an error that a retry may resolve; an error that only a change can resolve; stopped by a
signal."""


def address(text: str) -> tuple[str, int]:
    """Parse ``HOST:PORT``, with an IPv6 host in brackets. Return the host, without brackets, and the port. Raise
    ArgumentTypeError if the text is invalid."""
    host, _unused, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def count(text: str) -> int:
    """Parse a positive whole number. Raise ArgumentTypeError if the text is invalid."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def controller_key(text: str) -> str:
    """Return ``text`` if it is empty or a valid public key of the controller. Raise ArgumentTypeError for anything
    else."""
    if text and not CONTROLLER_KEY.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not an Ed25519 public key (43 characters of base64url)")
    return text


def engine_url(text: str) -> str:
    """Return ``text`` if it is an HTTP or HTTPS URL. Raise ArgumentTypeError for anything else."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise argparse.ArgumentTypeError(f"{text!r} is not a URL such as http://127.0.0.1:8000")
    return text


def folder(text: str) -> Path:
    """Convert a path to an absolute path."""
    return Path(os.path.abspath(text))


def arguments(argv: list[str]) -> argparse.Namespace:
    """Parse the command line. Exit with status 2 if it is invalid."""
    parser = argparse.ArgumentParser(prog="slipway loader", description="Download and verify model files.")
    subcommands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    listen = argparse.ArgumentParser(add_help=False)
    listen.add_argument(
        "--listen", type=address, default=("", PORT), metavar="HOST:PORT", help="address for the controller's requests"
    )
    listen.add_argument(
        "--controller-key",
        default=os.environ.get(CONTROLLER_KEY_VARIABLE, ""),
        type=controller_key,
        metavar="KEY",
        help="the controller's public key: other requests are refused; without a key the port stays closed",
    )
    listen.add_argument(
        "--pod",
        default=os.environ.get(POD_UID_VARIABLE, ""),
        metavar="UID",
        help="this pod's UID, which the controller signs too",
    )
    guarded = report_commands.access_options()
    one = subcommands.add_parser("load", parents=[listen, guarded], help="download a source into a folder")
    one.add_argument(
        "url", metavar="URL", help="hf://ORG/REPO[@REV], s3://, gs://, oss://BUCKET/FOLDER, or http(s)://FILE"
    )
    one.add_argument("folder", type=folder, metavar="DIR")
    one.add_argument(
        "--parallel", type=count, default=Policy().parallel, metavar="N", help="files to download at a time"
    )
    one.add_argument(
        "--attempts",
        type=count,
        default=Policy().attempts,
        metavar="N",
        help="give up after N consecutive attempts without progress",
    )
    one.set_defaults(run=run_load)
    two = subcommands.add_parser("evict", help="remove a downloaded folder")
    two.add_argument("folder", type=folder, metavar="DIR")
    two.add_argument(
        "--below",
        type=folder,
        metavar="DIR",
        help="refuse to remove anything outside of DIR (default: the mounted volume)",
    )
    two.set_defaults(run=run_evict)
    owner = subcommands.add_parser("own", help="give a folder to a namespace, and to the user that fills it")
    owner.add_argument("folder", type=folder, metavar="DIR")
    owner.add_argument("--user", type=count, metavar="UID", help="who fills the folder (default: its owner stays)")
    owner.add_argument(
        "--namespace",
        metavar="NAME",
        help="whose folder it is to be (empty: the operator's); that of another namespace is replaced by a new one",
    )
    owner.add_argument("--known", action="store_true", help="a folder without a mark is the namespace's already")
    owner.set_defaults(run=run_own)
    three = subcommands.add_parser(
        "serve", parents=[listen, guarded], help="download adapters and load them into an engine"
    )
    three.add_argument("--directory", type=folder, required=True, metavar="DIR", help="folder shared with the engine")
    three.add_argument("--engine", type=engine_url, required=True, metavar="URL", help="the engine's base URL")
    three.add_argument(
        "--engine-kind",
        choices=ENGINES,
        default=ENGINES[0],
        help="the API of its endpoints (default: %(default)s)",
    )
    three.add_argument("--max-bytes", type=count, default=MOST_BYTES, metavar="N", help="total disk space for adapters")
    three.set_defaults(run=run_serve)
    report_commands.add_commands(subcommands, listen)
    registry_commands.add_commands(subcommands, listen)
    options = parser.parse_args(argv)
    if options.command == "serve" and not options.controller_key:
        parser.error(f"serve needs the controller's public key: set --controller-key or ${CONTROLLER_KEY_VARIABLE}")
    if getattr(options, "controller_key", "") and not options.pod:
        parser.error(f"--controller-key needs this pod's UID: set --pod or ${POD_UID_VARIABLE}")
    return options


def run_load(options: argparse.Namespace) -> str:
    """Run ``load`` and return a sentence about the result. Raise LoadError or StoppedError."""
    if Folder(options.folder).holds(redact_url(options.url)):
        return f"{options.folder} is already complete"
    # Imported late: a restarted pod with complete weights must not wait for modules that only a download needs.
    from slipway.loader.cli import commands

    policy = Policy(attempts=options.attempts, parallel=options.parallel)
    port = commands.port(options.listen, options.controller_key, options.pod)
    return commands.run_load(options.url, options.folder, policy, port, report_commands.access(options))


def run_evict(options: argparse.Namespace) -> str:
    """Run ``evict`` and return a sentence about the result. Raise LoadError."""
    existed = evict(options.folder, options.below)
    return f"removed {options.folder}" if existed else f"{options.folder} does not exist"


def run_own(options: argparse.Namespace) -> str:
    """Run ``own`` and return a sentence about the result. Raise LoadError."""
    replaced = options.namespace is not None and renew(options.folder, options.namespace, is_known=options.known)
    if options.user is not None:
        own(options.folder, options.user)
    return f"{options.folder} is {'a new folder' if replaced else 'as it should be'}"


def run_serve(options: argparse.Namespace) -> str:
    """Run ``serve`` until a signal stops it, and return a sentence about the result. Raise LoadError."""
    from slipway.loader.cli import commands

    listen = commands.Port(options.listen, commands.gate(options.controller_key, options.pod))
    engine = commands.engine(options.engine, options.engine_kind)
    commands.run_serve(options.directory, engine, listen, options.max_bytes, report_commands.access(options))
    return "stopped"


def main(argv: list[str]) -> int:
    """Run the command and return its exit status. Raise SystemExit if the command line is invalid."""
    options = arguments(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    try:
        message: str = options.run(options)
    except LoadError as error:
        write_termination_message(str(error))
        return LATER if error.transient else NEVER
    except StoppedError:
        write_termination_message("stopped")
        return STOPPED
    if options.command in (*report_commands.COMMANDS, *registry_commands.COMMANDS):
        write_termination_message(message)
    else:
        sys.stderr.write(f"slipway loader: {message}\n")
    return DONE
