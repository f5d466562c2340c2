"""``slipway loader stage|inspect|probe``: the commands that end with a report, which the controller reads.

Where Kubernetes gives a place for a container's last words the report goes there; else it is seen on standard error.
"""

from __future__ import annotations

import argparse
import os
import re
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from slipway.artifacts.guard import Guard
from slipway.artifacts.report import Report, written
from slipway.loader.progress import Meter
from slipway.loader.selection import Chosen
from slipway.loader.source import Access
from slipway.loader.stage import Work, inspect, opened, probe, stage
from slipway.loader.transfer import Policy

COMMANDS = ("stage", "inspect", "probe")
HEADERS = ("gguf", "safetensors")
SHA256 = re.compile(r"[0-9a-fA-F]{64}")


def sha256(text: str) -> str:
    if not SHA256.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no SHA-256: 64 hexadecimal digits")
    return text.lower()


def access_options() -> argparse.ArgumentParser:
    """Those that say where a source may be asked, and as whom; ``access`` reads them."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--guard", action="store_true", help="where a spec or its Secret says where to ask: public addresses only"
    )
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="HOST", help="or these: a host, *.domain or network"
    )
    parser.add_argument(
        "--block-network", action="append", default=[], metavar="NETWORK", help="and never these, whatever is allowed"
    )
    parser.add_argument(
        "--guard-proxy", action="store_true", help="proxies, too, are asked only where --guard lets them"
    )
    parser.add_argument(
        "--node-identity", action="store_true", help="ask as the node where nobody is named, by its metadata service"
    )
    return parser


def access(options: argparse.Namespace) -> Access:
    return Access(_guard(options), options.node_identity)


def commands(parsers: argparse._SubParsersAction[argparse.ArgumentParser], listen: argparse.ArgumentParser) -> None:
    """Adds them. ``run`` of what is parsed gives the report as JSON."""
    guarded = access_options()
    chosen = argparse.ArgumentParser(add_help=False)
    chosen.add_argument("url", metavar="URL", help="as for load, or file:///PATH")
    chosen.add_argument(
        "--file", action="append", default=[], metavar="PATTERN", help="only such files; the main one first"
    )
    header = argparse.ArgumentParser(add_help=False)
    header.add_argument("--header", choices=HEADERS, default="", help="read the header of such files")
    expected = argparse.ArgumentParser(add_help=False)
    expected.add_argument("--sha256", type=sha256, metavar="HEX", help="hash that the main file must have")
    one = parsers.add_parser(
        "stage", parents=[listen, guarded, chosen, header, expected], help="bring chosen files into a folder of a cache"
    )
    one.add_argument("folder", type=Path, metavar="DIR")
    one.add_argument("--as", dest="stored_as", default="", metavar="NAME", help="name that the one file gets")
    one.add_argument("--refresh", action="store_true", help="what is there may be older than the source")
    one.set_defaults(run=run_stage)
    two = parsers.add_parser("inspect", parents=[listen, guarded, header, expected], help="read what is in a place")
    two.add_argument("path", type=Path, metavar="PATH")
    two.set_defaults(run=run_inspect)
    three = parsers.add_parser(
        "probe", parents=[listen, guarded, chosen, header], help="ask a source what it has, and fetch nothing"
    )
    three.set_defaults(run=run_probe)


def run_stage(options: argparse.Namespace) -> str:
    chosen = Chosen(tuple(options.file), options.stored_as, options.sha256 or "")
    source = partial(opened, options.url, os.environ, _guard(options), node_identity=options.node_identity)

    def report(work: Work) -> Report:
        return stage(options.url, source, options.folder, chosen, work, refresh=options.refresh)

    return _reported(options, report)


def run_inspect(options: argparse.Namespace) -> str:
    def report(work: Work) -> Report:
        return inspect(options.path, options.sha256 or "", work)

    return _reported(options, report)


def run_probe(options: argparse.Namespace) -> str:
    def report(work: Work) -> Report:
        source = opened(options.url, os.environ, _guard(options), node_identity=options.node_identity)
        return probe(options.url, source, Chosen(tuple(options.file)), work)

    return _reported(options, report)


def _reported(options: argparse.Namespace, report: Callable[[Work], Report]) -> str:
    """Does it beside the port that tells of progress. Raises LoadError or StoppedError."""
    from slipway.loader import running

    work = Work(Policy(), threading.Event(), Meter(), options.header)
    port = running.port(options.listen, options.controller_key, options.pod)
    return written(running.with_progress(partial(report, work), work.meter, port)).decode()


def _guard(options: argparse.Namespace) -> Guard | None:
    if not options.guard:
        return None
    return Guard(tuple(options.allow_host), tuple(options.block_network), options.guard_proxy)
