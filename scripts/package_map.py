"""Writes the picture of the packages in docs/dev/code-map.md: what each contains, and which it imports.

usage: package_map.py
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/slipway"
PAGE = ROOT / "docs/dev/code-map.md"
BEGIN, END = "<!-- packages: written by scripts/package_map.py -->\n", "<!-- packages end -->\n"


def packages(source: Path = SOURCE) -> dict[str, list[Path]]:
    """Package, or module of the top level -> its files."""
    entries = [path for path in sorted(source.iterdir()) if not path.name.startswith("__")]
    folders = {path.name: sorted(path.rglob("*.py")) for path in entries if (path / "__init__.py").exists()}
    return folders | {path.stem: [path] for path in entries if path.suffix == ".py"}


def imports(files: Mapping[str, list[Path]]) -> dict[str, set[str]]:
    """Package -> the other packages that it imports."""
    return {name: set[str]().union(*map(_imported, paths)) & (set(files) - {name}) for name, paths in files.items()}


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from (
            name.split(".")[1] for name in names if name.startswith("slipway.") and name != "slipway.__version__"
        )


def floors(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """Packages from top to bottom: each floor imports only lower ones. Raises ValueError for a cycle."""
    result: list[list[str]] = []
    rest = set(arrows)
    while rest:
        floor = sorted(name for name in rest if not arrows[name] & rest)
        if not floor:
            raise ValueError(f"The packages {', '.join(sorted(rest))} import each other")
        result.insert(0, floor)
        rest -= set(floor)
    return result


def draw(files: Mapping[str, list[Path]]) -> str:
    """The picture in Mermaid, and a table. An arrow is left out if a longer way shows the same."""
    arrows = imports(files)
    lines = ["```mermaid", "flowchart TD"]
    for floor in floors(arrows):
        lines += [f"  {name} --> {other}" for name in floor for other in sorted(_direct(name, arrows))]
    lines += ["```", "", "| package | content | imports |", "| --- | --- | --- |"]
    lines += [
        f"| `{name}` | {_summary(files[name])} | {', '.join(f'`{one}`' for one in sorted(arrows[name])) or '-'} |"
        for floor in floors(arrows)
        for name in floor
    ]
    return "\n".join(lines) + "\n"


def _direct(name: str, arrows: Mapping[str, set[str]]) -> set[str]:
    return {one for one in arrows[name] if not any(one in _reachable(other, arrows) for other in arrows[name] - {one})}


def _reachable(name: str, arrows: Mapping[str, set[str]]) -> set[str]:
    return arrows[name].union(*(_reachable(one, arrows) for one in arrows[name]))


def _summary(paths: list[Path]) -> str:
    """The first sentence of the docstring."""
    text = ast.get_docstring(ast.parse(paths[0].read_text())) or ""
    sentence = " ".join(text.partition("\n\n")[0].split()).partition(". ")[0]
    return sentence.replace("``", "`").removesuffix(".") + "."


def write(text: str, picture: str) -> str:
    """The page with this picture."""
    before, _begin, rest = text.partition(BEGIN)
    _old, _end, after = rest.partition(END)
    return f"{before}{BEGIN}\n{picture}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(write(PAGE.read_text(), draw(packages())))
