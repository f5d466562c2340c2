"""``slipway loader stage|inspect|probe|summary``: commands that end with a report for the controller.

The report is written to standard error and, in a container, becomes the termination message.
"""

from __future__ import annotations

import argparse
import os
import re
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from slipway.artifacts.documents import benchmark
from slipway.artifacts.documents.report import Report, encode_report
from slipway.artifacts.locations.address_policy import AddressPolicy
from slipway.loader.cli.summary import summarize_on_stop
from slipway.loader.cli.termination import write_termination_message
from slipway.loader.disk.folder import Owner
from slipway.loader.disk.progress import Meter, Pace
from slipway.loader.download.stage import Work, inspect, opened, probe, stage
from slipway.loader.download.transfer import Policy
from slipway.loader.transport.selection import FileRequest
from slipway.loader.transport.source import Access

COMMANDS = ("stage", "inspect", "probe", "summary")
HEADERS = ("gguf", "safetensors", "model")
SHA256 = re.compile(r"[0-9a-fA-F]{64}")


def sha256(text: str) -> str:
    """Parse a SHA-256 hash in hex, and return it in lower case. Raise ArgumentTypeError if the text is invalid."""
    if not SHA256.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a SHA-256 hash (64 hexadecimal digits)")
    return text.lower()


def access_options() -> argparse.ArgumentParser:
    """Return a parser for the options that restrict addresses and allow the node's identity. Pass the parsed options to
    ``access``."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--guard",
        action="store_true",
        help="connect only to public addresses where a spec or its Secret names the address",
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="HOST",
        help="with --guard, also allow this host, *.domain or network (repeatable)",
    )
    parser.add_argument(
        "--block-network",
        action="append",
        default=[],
        metavar="NETWORK",
        help="never connect to this network, even if allowed (repeatable)",
    )
    parser.add_argument("--guard-proxy", action="store_true", help="apply --guard to proxies as well")
    parser.add_argument(
        "--node-identity",
        action="store_true",
        help="without other credentials, use the node's identity from its metadata service",
    )
    return parser


def access(options: argparse.Namespace) -> Access:
    """Return the addresses and the identity that the options of ``access_options`` allow."""
    return Access(_address_policy(options), options.node_identity)


def add_commands(parsers: argparse._SubParsersAction[argparse.ArgumentParser], listen: argparse.ArgumentParser) -> None:
    """Add the commands that end with a report to the parser. ``listen`` is a parser with the options of the loader's
    port. Each command sets ``run``, a function that gets the parsed options and returns the report as JSON."""
    guarded = access_options()
    chosen = argparse.ArgumentParser(add_help=False)
    chosen.add_argument("url", metavar="URL", help="a URL as for load, or file:///PATH")
    chosen.add_argument(
        "--file",
        action="append",
        default=[],
        metavar="PATTERN",
        help="download only matching files; name the main file first (repeatable)",
    )
    header = argparse.ArgumentParser(add_help=False)
    header.add_argument(
        "--header",
        choices=HEADERS,
        default="",
        help="read the headers of files in this format; model: whatever describes them",
    )
    expected = argparse.ArgumentParser(add_help=False)
    expected.add_argument("--sha256", type=sha256, metavar="HEX", help="expected SHA-256 of the main file")
    one = parsers.add_parser(
        "stage",
        parents=[listen, guarded, chosen, header, expected],
        help="download selected files into a folder of a cache",
    )
    one.add_argument("folder", type=Path, metavar="DIR")
    one.add_argument("--as", dest="stored_as", default="", metavar="NAME", help="store the file under this name")
    one.add_argument("--refresh", action="store_true", help="replace files that are older than the source")
    one.add_argument(
        "--reuse",
        type=Path,
        metavar="DIR",
        help="reuse files with a digest of the same revision in DIR or a folder in it",
    )
    one.add_argument(
        "--owner",
        default="",
        metavar="UID",
        help="do not trust files without a digest from loads of other owners in the folder",
    )
    one.add_argument("--seal", default="", metavar="SEAL", help="the folder's seal after the owner's last load")
    one.set_defaults(run=run_stage)
    two = parsers.add_parser(
        "inspect", parents=[listen, guarded, header, expected], help="report on files that are already there"
    )
    two.add_argument("path", type=Path, metavar="PATH")
    two.set_defaults(run=run_inspect)
    three = parsers.add_parser(
        "probe", parents=[listen, guarded, chosen, header], help="report on a source without downloading it"
    )
    three.set_defaults(run=run_probe)
    four = parsers.add_parser("summary", help="wait for the stop signal, then report genai-bench's results")
    four.add_argument("folder", type=Path, metavar="DIR", help="folder with the folders of results")
    four.set_defaults(run=run_summary)


def run_stage(options: argparse.Namespace) -> str:
    """Run ``stage`` and return the report as JSON. Raise LoadError or StoppedError."""
    chosen = FileRequest(tuple(options.file), options.stored_as, options.sha256 or "")
    source = partial(opened, options.url, os.environ, _address_policy(options), node_identity=options.node_identity)

    def report(work: Work) -> Report:
        owner = Owner(options.owner, options.seal) if options.owner else None
        return stage(
            options.url, source, options.folder, chosen, work, refresh=options.refresh, reuse=options.reuse, owner=owner
        )

    return _reported(options, report)


def run_inspect(options: argparse.Namespace) -> str:
    """Run ``inspect`` and return the report as JSON. Raise LoadError or StoppedError."""

    def report(work: Work) -> Report:
        return inspect(options.path, options.sha256 or "", work)

    return _reported(options, report)


def run_probe(options: argparse.Namespace) -> str:
    """Run ``probe`` and return the report as JSON. Raise LoadError or StoppedError."""

    def report(work: Work) -> Report:
        source = opened(options.url, os.environ, _address_policy(options), node_identity=options.node_identity)
        return probe(options.url, source, FileRequest(tuple(options.file)), work)

    return _reported(options, report)


def run_summary(options: argparse.Namespace) -> str:
    """Run ``summary`` until a signal stops it, and return the summary as JSON."""
    ready = partial(write_termination_message, "waiting for the benchmark to end")
    return benchmark.encode_summary(summarize_on_stop(options.folder, ready)).decode()


def _reported(options: argparse.Namespace, report: Callable[[Work], Report]) -> str:
    """Call ``report``, and return its result as JSON. Meanwhile, report its progress on the loader's port if the
    options contain a controller's key. Raise LoadError, also if the source is too slow, or StoppedError."""
    from slipway.loader.cli import commands

    work = Work(Policy(), threading.Event(), Meter(), options.header)
    port = commands.port(options.listen, options.controller_key, options.pod)
    return encode_report(commands.with_progress(partial(report, work), work.meter, port, Pace(work.meter))).decode()


def _address_policy(options: argparse.Namespace) -> AddressPolicy | None:
    if not options.guard:
        return None
    return AddressPolicy(tuple(options.allow_host), tuple(options.block_network), options.guard_proxy)
