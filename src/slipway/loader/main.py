"""``slipway loader load|stage|inspect|probe|evict|serve``: fetch weights into a folder, tell what they are, remove
them, or look after an engine's adapters.

The last line on standard error says why it ended, and Kubernetes shows it as the container's termination message.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from slipway.artifacts.addresses import public
from slipway.loader import reporting
from slipway.loader.errors import LoadError, StoppedError
from slipway.loader.evict import evict
from slipway.loader.folder import Folder
from slipway.loader.transfer import Policy
from slipway.serving.agent import CONTROLLER_KEY, CONTROLLER_KEY_VARIABLE, POD_UID_VARIABLE, PORT

TERMINATION_LOG = Path("/dev/termination-log")
"""Where Kubernetes reads a container's last words."""
LONGEST_MESSAGE = 4000
"""Bytes; Kubernetes takes 4096."""
MOST_BYTES = 20 << 30
"""What all adapters of a pod may have together, where nothing is said."""
DONE, LATER, NEVER, STOPPED = 0, 1, 3, 128 + signal.SIGTERM
"""Exit status: it may succeed when run again; it will not before somebody has changed something; it was told to end."""


def address(text: str) -> tuple[str, int]:
    """``HOST:PORT``, an IPv6 host in brackets."""
    host, _unused, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def controller_key(text: str) -> str:
    if text and not CONTROLLER_KEY.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no Ed25519 public key: 43 characters of base64url")
    return text


def engine_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise argparse.ArgumentTypeError(f"{text!r} is no address such as http://127.0.0.1:8000")
    return text


def folder(text: str) -> Path:
    return Path(os.path.abspath(text))


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="slipway loader", description="Move model files, verified and resumed.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    listen = argparse.ArgumentParser(add_help=False)
    listen.add_argument(
        "--listen", type=address, default=("", PORT), metavar="HOST:PORT", help="where the controller is answered"
    )
    listen.add_argument(
        "--controller-key",
        default=os.environ.get(CONTROLLER_KEY_VARIABLE, ""),
        type=controller_key,
        metavar="KEY",
        help="the controller's public key: who cannot sign for it is refused; without a key the port stays closed",
    )
    listen.add_argument(
        "--pod", default=os.environ.get(POD_UID_VARIABLE, ""), metavar="UID", help="this pod's uid, which is signed too"
    )
    guarded = reporting.access_options()
    one = commands.add_parser("load", parents=[listen, guarded], help="bring what a URL names into a folder")
    one.add_argument(
        "url", metavar="URL", help="hf://ORG/REPO[@REV], s3://, gs://, oss://BUCKET/FOLDER, or http(s)://FILE"
    )
    one.add_argument("folder", type=folder, metavar="DIR")
    one.add_argument("--parallel", type=count, default=Policy.parallel, metavar="N", help="files at a time")
    one.add_argument(
        "--attempts", type=count, default=Policy.attempts, metavar="N", help="without a new byte in between"
    )
    one.set_defaults(run=run_load)
    two = commands.add_parser("evict", help="remove a folder that was loaded")
    two.add_argument("folder", type=folder, metavar="DIR")
    two.add_argument(
        "--below", type=folder, metavar="DIR", help="nothing outside of it goes; by default the volume's mount"
    )
    two.set_defaults(run=run_evict)
    three = commands.add_parser("serve", parents=[listen, guarded], help="fetch adapters and have an engine load them")
    three.add_argument("--directory", type=folder, required=True, metavar="DIR", help="shared with the engine")
    three.add_argument("--engine", type=engine_url, required=True, metavar="URL")
    three.add_argument(
        "--max-bytes", type=count, default=MOST_BYTES, metavar="N", help="what all adapters may have together"
    )
    three.set_defaults(run=run_serve)
    reporting.commands(commands, listen)
    options = parser.parse_args(argv)
    if options.command == "serve" and not options.controller_key:
        parser.error(
            f"serve takes orders from the controller alone: it needs --controller-key or ${CONTROLLER_KEY_VARIABLE}"
        )
    if getattr(options, "controller_key", "") and not options.pod:
        parser.error(f"a controller's key is of use to a pod only: it needs --pod or ${POD_UID_VARIABLE}")
    return options


def run_load(options: argparse.Namespace) -> str:
    if Folder(options.folder).holds(public(options.url)):
        return f"{options.folder} was complete already"
    # Only now: a restarted pod whose weights are there shall not wait for what a download needs.
    from slipway.loader import running

    policy = Policy(attempts=options.attempts, parallel=options.parallel)
    port = running.port(options.listen, options.controller_key, options.pod)
    return running.run_load(options.url, options.folder, policy, port, reporting.access(options))


def run_evict(options: argparse.Namespace) -> str:
    there = evict(options.folder, options.below)
    return f"{options.folder} is removed" if there else f"{options.folder} was not there"


def run_serve(options: argparse.Namespace) -> str:
    from slipway.loader import running

    listen = running.Port(options.listen, running.gate(options.controller_key, options.pod))
    running.run_serve(options.directory, options.engine, listen, options.max_bytes, reporting.access(options))
    return "ended as told"


def last_words(message: str, place: Path = TERMINATION_LOG) -> None:
    """For whoever looks at the container; on a read-only file system Kubernetes keeps this one file writable."""
    text = " ".join(message.split())
    sys.stderr.write(f"slipway loader: {text}\n")
    sys.stderr.flush()
    with suppress(OSError):
        if place.exists():
            place.write_bytes(text.encode("utf-8", "replace")[:LONGEST_MESSAGE])


def main(argv: list[str]) -> int:
    options = arguments(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    try:
        message: str = options.run(options)
    except LoadError as error:
        last_words(str(error))
        return LATER if error.passing else NEVER
    except StoppedError:
        last_words("told to end; the next run goes on from here")
        return STOPPED
    if options.command in reporting.COMMANDS:
        last_words(message)
    else:
        sys.stderr.write(f"slipway loader: {message}\n")
    return DONE
