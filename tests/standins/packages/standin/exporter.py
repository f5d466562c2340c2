"""Metrics of a program that does not run here: ``python3 -m standin.exporter FILE`` serves them at ``/metrics``.

The file is in Prometheus' text format. What it calls a counter or a histogram grows: its value there is what comes on
top in a second.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from .web import Answer, Handler, Request, serve

KIND = re.compile(r"# TYPE (?P<name>\S+) (?P<kind>\w+)")
SAMPLE = re.compile(r"(?P<series>\S+) (?P<value>\S+)")
GROWING = ("counter", "histogram")


def application(text: str, clock: Callable[[], float] = time.monotonic) -> Handler:
    began = clock()

    def handle(request: Request) -> Answer:
        if request.path != "/metrics":
            return Answer(status=404)
        body = "".join(f"{line}\n" for line in shown(text, clock() - began))
        return Answer(body.encode(), kind="text/plain; version=0.0.4; charset=utf-8")

    return handle


def shown(text: str, seconds: float) -> Iterator[str]:
    """The lines of the file after so many seconds."""
    kind = ""
    for line in text.splitlines():
        declaration, sample = KIND.fullmatch(line), SAMPLE.fullmatch(line)
        if declaration:
            kind = declaration["kind"]
        if sample and kind in GROWING:
            yield f"{sample['series']} {float(sample['value']) * seconds}"
        else:
            yield line


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="standin.exporter")
    parser.add_argument("--port", type=int, default=9400)
    parser.add_argument("file", type=Path)
    flags = parser.parse_args(arguments)
    serve(application(flags.file.read_text()), "0.0.0.0", flags.port)


if __name__ == "__main__":
    main(sys.argv[1:])
