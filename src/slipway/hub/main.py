"""The command ``slipway hub``, which serves the directories ``ROOT/<org>/<name>`` as a Hugging Face Hub."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from slipway.hub.folder import PATTERN
from slipway.hub.server import application
from slipway.hub.tokens import InvalidTokensError

GRACE = 20.0
"""Seconds that running downloads get after SIGTERM. This is less than Kubernetes' default grace period, 30 seconds."""


class RequestLog(AbstractAccessLogger):
    """An access log with one line for every request except probes. URLs are logged as sent, because a raw URL cannot
    contain a line break."""

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """Log a request. aiohttp calls this method after each response. ``time`` is the duration in seconds."""
        if request.path in ("/healthz", "/readyz"):
            return
        size = response.content_length if response.content_length is not None else "-"
        self.logger.info(
            '%s "%s %s" %d %s %.3fs', request.remote, request.method, request.raw_path, response.status, size, time
        )


def address(text: str) -> tuple[str, int]:
    """Parse ``HOST:PORT``, with an IPv6 host in brackets. ``:PORT`` means all IPv4 and IPv6 addresses. Raise
    ArgumentTypeError if the text is invalid."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def pattern(text: str) -> str:
    """Return the name or pattern of repositories, such as ``acme/tiny`` or ``acme/*``, unchanged. Raise
    ArgumentTypeError if it is invalid."""
    if not PATTERN.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a repository (acme/tiny) nor a pattern (acme/*)")
    return text


def main(argv: list[str]) -> int:
    """Serve the hub until the process is stopped. Return the exit status: 0, or 2 if the root is not a directory or the
    tokens file is unusable. Raise SystemExit for other invalid arguments."""
    parser = argparse.ArgumentParser(
        prog="slipway hub", description="Serve model files with the Hugging Face protocol."
    )
    parser.add_argument("--root", type=Path, required=True, metavar="DIR", help="folder with ORG/NAME/FILES below it")
    parser.add_argument("--listen", type=address, required=True, metavar="HOST:PORT", help="address to serve on")
    parser.add_argument(
        "--tokens", type=Path, metavar="FILE", help="tokens that may read gated repositories, one 'NAME TOKEN' per line"
    )
    parser.add_argument(
        "--gated",
        type=pattern,
        action="append",
        default=[],
        metavar="PATTERN",
        help="gate matching repositories, such as acme/tiny or acme/*, whatever they declare (repeatable)",
    )
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stdout)
    if not arguments.root.is_dir():
        sys.stderr.write(f"slipway hub: {arguments.root} is not a folder\n")
        return 2
    try:
        app = application(arguments.root, arguments.tokens, arguments.gated)
    except (OSError, UnicodeDecodeError, InvalidTokensError) as error:
        sys.stderr.write(f"slipway hub: {arguments.tokens}: {error}\n")
        return 2
    host, port = arguments.listen
    web.run_app(
        app,
        host=host or None,
        port=port,
        shutdown_timeout=GRACE,
        access_log_class=RequestLog,
        print=None,
    )
    return 0
