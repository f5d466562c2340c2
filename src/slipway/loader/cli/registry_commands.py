"""``slipway loader publish|pull|unpublish``: commands that add models to a registry, download them and remove them.

The termination message of ``publish`` is a publication, as defined in ``slipway.artifacts.documents.publication``.
"""

from __future__ import annotations

import argparse
import os
import threading
from pathlib import Path

from slipway.artifacts.documents import publication
from slipway.artifacts.documents.publication import Publication
from slipway.artifacts.locations import references
from slipway.artifacts.locations.huggingface import chosen_token
from slipway.artifacts.locations.references import Reference
from slipway.loader.cli import report_commands
from slipway.loader.disk.folder import Folder
from slipway.loader.disk.progress import Meter
from slipway.loader.download.stage import Work
from slipway.loader.download.transfer import Policy
from slipway.loader.transport.errors import LoadError
from slipway.loader.transport.source import Access

COMMANDS = ("publish",)
"""Commands of this module whose result is the container's termination message."""
PIECES = "pieces://"
PUBLIC = ("hf", "ollama")
PATIENT = Policy(attempts=12)
"""Retry policy of publications, with enough attempts to outlast the restart of a registry."""


def target(text: str) -> Reference:
    """Parse ``HOST[:PORT]/REPOSITORY``. Raise ArgumentTypeError if the text is invalid, or has a tag or a digest."""
    try:
        reference = references.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if reference.version:
        raise argparse.ArgumentTypeError(f"{text!r} has a tag or a digest: name the repository")
    return reference


def artifact(text: str) -> Reference:
    """Parse ``HOST[:PORT]/REPOSITORY@sha256:...``. Raise ArgumentTypeError if the text is invalid."""
    try:
        reference = references.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not reference.digest:
        raise argparse.ArgumentTypeError(f"{text!r} does not end with @sha256:...")
    return reference


def size(text: str) -> int:
    """Parse a number of bytes. Raise ArgumentTypeError if the text is invalid."""
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes")
    return int(text)


def add_commands(parsers: argparse._SubParsersAction[argparse.ArgumentParser], listen: argparse.ArgumentParser) -> None:
    """Add the commands for registries to the parser. ``listen`` is a parser with the options of the loader's port. Each
    command sets ``run``, a function that gets the parsed options and returns a sentence or, for ``publish``, the
    publication as JSON."""
    guarded = report_commands.access_options()
    one = parsers.add_parser("publish", parents=[listen, guarded], help="publish a source in a registry as an artifact")
    one.add_argument(
        "source",
        metavar="SOURCE",
        help="hf://ORG/REPO[@REV], ollama://NAME[:TAG], registry://HOST/REPOSITORY@sha256:..., "
        "pieces:// for an upload to the target, or catalog://HOST/PATH@sha256:... for a grant of the depot",
    )
    one.add_argument("target", type=target, metavar="HOST[:PORT]/REPOSITORY")
    one.add_argument("--image", action="store_true", help="also publish the files as an image, for image volumes")
    one.add_argument(
        "--capacity-free", type=size, metavar="N", help="fail before sending if more than N bytes would be added"
    )
    one.add_argument("--resume", default="", metavar="JSON", help="report of an earlier run, to resume it")
    one.set_defaults(run=run_publish)
    two = parsers.add_parser("pull", parents=[listen], help="download an artifact into a folder")
    two.add_argument("reference", type=artifact, metavar="HOST[:PORT]/REPOSITORY@sha256:...")
    two.add_argument("folder", type=lambda text: Path(os.path.abspath(text)), metavar="DIR")
    two.set_defaults(run=run_pull)
    three = parsers.add_parser("unpublish", help="delete all manifests of a repository")
    three.add_argument("target", type=target, metavar="HOST[:PORT]/REPOSITORY")
    three.add_argument("--resume", default="", metavar="JSON", help="report of a publish run, to cancel its upload")
    three.set_defaults(run=run_unpublish)


def run_publish(options: argparse.Namespace) -> str:
    """Run ``publish`` and return the publication as JSON. Raise LoadError or StoppedError."""
    from slipway.loader.cli import commands
    from slipway.loader.publication.publish import PublishRequest, publish, publish_upload
    from slipway.loader.transport.registry import Registry
    from slipway.loader.transport.source import open_source

    work = Work(PATIENT, threading.Event(), Meter())
    access: Access = report_commands.access(options)
    name, url = _public_source(options.source)
    request = PublishRequest(name=name, url=url, image=options.image, room=options.capacity_free, resume=options.resume)
    registry = Registry(options.target, os.environ, stop=work.stop, note=work.meter.note)

    def published() -> Publication:
        if options.source == PIECES:
            return publish_upload(registry, request, work)
        environment = {**os.environ, **chosen_token(os.environ)}
        return publish(open_source(options.source, environment, access), registry, request, work)

    port = commands.port(options.listen, options.controller_key, options.pod)
    return publication.encode_publication(commands.with_progress(published, work.meter, port)).decode()


def run_pull(options: argparse.Namespace) -> str:
    """Run ``pull`` and return a sentence about the result. Raise LoadError or StoppedError."""
    url = f"registry://{options.reference}"
    if Folder(options.folder).holds(url):
        return f"{options.folder} is already complete"
    from slipway.loader.cli import commands

    port = commands.port(options.listen, options.controller_key, options.pod)
    return commands.run_load(url, options.folder, Policy(), port, Access())


def run_unpublish(options: argparse.Namespace) -> str:
    """Run ``unpublish`` and return a sentence about the result. Raise LoadError."""
    from slipway.loader.publication.publish import unpublish
    from slipway.loader.transport.registry import Registry

    work = Work(Policy(), threading.Event(), Meter())
    registry = Registry(options.target, os.environ)
    deleted = unpublish(registry, work.retry(str(options.target)), options.resume)
    return f"deleted {deleted} manifests of {options.target}" if deleted else f"{options.target} has no manifests"


def _public_source(source: str) -> tuple[str, str]:
    """Return the name and the URL of a public source, which all users who pull the artifact can see. Both are empty if
    the source is not public. Raise LoadError for an unsupported scheme."""
    scheme, separator, rest = source.partition("://")
    if not separator or scheme not in (*PUBLIC, "registry", "catalog", "pieces"):
        raise LoadError(f"cannot publish {source!r}: write hf://, ollama://, registry://, catalog:// or pieces://")
    return (rest.partition("@")[0], source) if scheme in PUBLIC else ("", "")
