"""The tables that the pages show have the columns that `kubectl get` prints."""

from __future__ import annotations

import re
from itertools import pairwise

import yaml

from tests.tables import each

from ...docs.pages import PAGES, ROOT, Block, blocks, commands

HEADER = re.compile(r"^(?:NAMESPACE   +)?NAME   .*$", re.MULTILINE)
RESOURCE = re.compile(r"\b[a-z]+\.[a-z]+(?:\.[a-z]+)+\b")


def read_columns() -> dict[str, list[str]]:
    """Every name of each kind, such as ``isvc.ome.io`` -> its columns."""
    columns = {}
    for file in (ROOT / "roles/crds/files").glob("*.yaml"):
        spec = yaml.safe_load(file.read_text())["spec"]
        (version,) = spec["versions"]
        shown = [column["name"].upper() for column in version["additionalPrinterColumns"] if not column.get("priority")]
        names = spec["names"]
        for name in (names["plural"], names["singular"], *names.get("shortNames", [])):
            columns[f"{name}.{spec['group']}"] = ["NAME", *shown]
    return columns


COLUMNS = read_columns()


def printed_headers(block: Block) -> list[list[str]]:
    """The headers of all tables of Slipway's kinds that the commands of a block print."""
    headers = []
    for command in commands(block):
        if command.startswith("kubectl get ") and "--output" not in command:
            namespace = ["NAMESPACE"] if "--all-namespaces" in command else []
            headers += [[*namespace, *COLUMNS[name]] for name in RESOURCE.findall(command) if name in COLUMNS]
    return headers


TABLES = [
    (command, output)
    for page in PAGES
    for command, output in pairwise(blocks(page))
    if output.language == "text" and HEADER.search(output.text) and printed_headers(command)
]


@each(TABLES, ids=lambda table: table[1].name)
def test_a_table_has_the_columns_of_its_kind(table: tuple[Block, Block]) -> None:
    command, output = table

    assert [re.split(" {3,}", line.strip()) for line in HEADER.findall(output.text)] == printed_headers(command)
