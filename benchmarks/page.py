"""Writes docs/explain/performance.md and its plots from the results in benchmarks/results.

    page.py                  writes the page
    page.py --take           first copies the results of `make bench` from build/bench, without their single rounds
    page.py --take NAME...   copies these only, such as gateway

Results of quick runs are not taken.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from outcome import FOLDER, ROOT, number
from plots import Bar, bars
from summary import goal_of

RESULTS = ROOT / "benchmarks/results"
PAGE = ROOT / "docs/explain/performance.md"
PLOTS = ROOT / "docs/images/performance"
Document = Mapping[str, Any]
Results = Mapping[str, Document]
OURS = "slipway"
PEERS = {
    OURS: "Slipway",
    "haproxy": "HAProxy alone",
    "go-tuned": "Go, tuned",
    "go-kubeai": "Go, as KubeAI's proxy",
    "vllm-router": "vllm-router",
    "smg": "smg",
    "envoy": "Envoy",
    "aiohttp": "Python, aiohttp",
    "litellm": "LiteLLM",
}
PARTS = {
    "gateway": "gateway/run",
    "gateway-hashing": "gateway/hashing",
    "gateway-replay": "gateway/replay",
    "gateway-churn": "gateway/churn",
    "gateway-canary": "gateway/canary",
    "controller": "controller/run",
    "controller-scale": "controller/scale",
    "controller-autoscaler": "controller/autoscaler",
    "loader": "loader/run",
    "registry": "registry/run",
    "ansible": "ansible/run",
    "ansible-tasks": "ansible/tasks",
    "ansible-hosts": "ansible/hosts",
    "demo": "demo/run",
    "demo-cold": "demo/cold",
}
"""Name of a result -> the part of scripts/bench.sh that measures it."""
QUIET_PERCENT = 25
"""If the worst round lies further above the best one, other work disturbed the measurement."""
DIRECT = "none (direct)"
SIZES = ("1 KB", "32 KB", "220 KB", "1 MB")
WORKS = {"large": "one large file", "small": "many small files", "again": "a load that is complete"}
LOADERS = {"ours": "Slipway", "client": "`hf download`", "curl": "curl", "curl+sha": "curl and sha256sum"}
HEAD = """\
# Performance

<!-- benchmarks/page.py writes this page from benchmarks/results. -->

How much Slipway costs beside other programs that do the same work. Ratios come first, because they depend less on the machine than times do. Contestants take turns on one machine, which has nothing else to do. `make bench` measures everything on your machine and lists which goals it misses, and `scripts/bench.sh PART` measures one part.
"""  # noqa: E501


class Page:
    """The text and the plots, section by section."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.lines: list[str] = [HEAD.rstrip()]
        self.plots: dict[str, str] = {}

    def add(self, *paragraphs: str) -> None:
        for paragraph in paragraphs:
            self.lines += ["", paragraph]

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        lines = [head, ["---"] * len(head), *rows]
        self.add("\n".join(f"| {' | '.join(line)} |" for line in lines))

    def plot(self, name: str, title: str, rows: Sequence[Bar]) -> None:
        if rows:
            self.plots[f"{name}.svg"] = bars(title, rows)
            self.add(f"![{title}](../images/performance/{name}.svg)")

    def measured(self, name: str) -> Mapping[str, Any] | None:
        """The figures of a benchmark. Adds where they are from, or how to get them; None: there are none."""
        document = self.results.get(name)
        if document is None:
            self.add(f"Not measured yet: `scripts/bench.sh {PARTS[name]}`.")
            return None
        figures: Mapping[str, Any] = document["figures"]
        for what, reason in document["missing"].items():
            self.add(f"Not measured: {PEERS.get(what, what)}, because {reason}.")
        self.add(source(document))
        return figures or None

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def source(document: Document) -> str:
    """Machine, date, versions and command of a result."""
    machine = document["machine"]
    place = f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']:.0f} GiB, Linux {machine['kernel']}"
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    return f"*{place}; {document['date']}; {versions}; `PYTHONPATH=src {document['command']}`*"


def render(results: Results) -> Page:
    page = Page(results)
    for section in (gateway, loader, controller, ansible, first_token, routing, goals):
        section(page)
    return page


# --- sections --------------------------------------------------------------------------------------------------------


def gateway(page: Page) -> None:
    page.add("## Gateway", "### CPU per request")
    figures = page.measured("gateway")
    if figures is None:
        return
    rows = {(row["case"], row["peer"]): row for row in figures["rows"] if "problem" not in row}
    peers = [peer for peer in PEERS if any(peer == measured for _case, measured in rows)]
    page.add(
        "CPU time per request of all processes of a gateway, in parts of Slipway's: above 1, Slipway is cheaper. Each "
        "runs with one thread or process in front of the same two mock engines. If the rounds of two gateways overlap, "
        "it is a tie. The work differs: Slipway checks keys and JSON, counts, and writes an access log. Other work "
        "on the machine only adds, so the best round counts."
    )
    head = ["gateway", *SIZES]
    ratios = [
        [PEERS[peer], *(_ratio(rows.get(_closed(size, peer))) for size in SIZES)] for peer in peers if peer != OURS
    ]
    page.table(head, [[DIRECT, *("0" for _size in SIZES)], *ratios])
    for size in (SIZES[0], SIZES[-1]):
        own = [Bar(PEERS[OURS], 1.0, "1", ours=True)]
        others = [_ratio_bar(peer, rows.get(_closed(size, peer))) for peer in peers if peer != OURS]
        name = f"gateway-cpu-{size.lower().replace(' ', '-')}"
        page.plot(name, f"CPU time per request of {size}, Slipway is 1", own + [bar for bar in others if bar])
    page.add(
        f"In microseconds, the best of {figures['rounds']} rounds. In brackets, how far the worst round lies above it:"
    )
    page.table(head, [[PEERS[peer], *(_cpu(rows.get(_closed(size, peer))) for size in SIZES)] for peer in peers])
    own = [rows[_closed(size, OURS)] for size in SIZES if _closed(size, OURS) in rows]
    widest = max((row["spread_percent"] for row in own), default=0)
    if widest > QUIET_PERCENT:
        page.add(
            f"**The machine was not quiet**: Slipway's worst round lies up to {widest:.0f} % above the best one. This "
            "hardly affects the instructions below."
        )
    counted = [size for size in SIZES if any(rows.get(_closed(size, p), {}).get("instructions") for p in peers)]
    page.add(
        f"Instructions per request, counted by {figures['instructions_by']}, of the program alone and not of the "
        "kernel. Requests come one after another. In thousands:"
    )
    table = [[PEERS[peer], *(_instructions(rows.get(_closed(size, peer))) for size in counted)] for peer in peers]
    page.table(["gateway", *counted], table)
    _streams(page, rows, peers)
    _latency(page, rows, peers)
    _memory(page, rows, peers)


def _closed(size: str, peer: str) -> tuple[str, str]:
    return f"{size}, model first", peer


def _ratio(row: Document | None) -> str:
    if row and row["peer"] == OURS:
        return "1"
    beside = row and row.get("to_ours")
    return "-" if not beside else "tie" if beside["tie"] else number(beside["best"])


def _ratio_bar(peer: str, row: Document | None) -> Bar | None:
    beside = row and row.get("to_ours")
    return Bar(PEERS[peer], beside["best"], _ratio(row)) if beside else None


def _cpu(row: Document | None) -> str:
    if not row or row.get("cpu_us") is None:
        return "-"
    return f"{number(row['cpu_us'])} (+{row['spread_percent']:.0f} %)"


def _instructions(row: Document | None) -> str:
    value = row.get("instructions") if row else ""
    return number(value / 1000) if isinstance(value, (int, float)) else "not available"


def _streams(page: Page, rows: Mapping[tuple[str, str], Document], peers: Sequence[str]) -> None:
    events, idle = "50 streams of 200 events/s", "1,000 idle streams"
    page.add(
        "### Streams", f"CPU time per event of {events}, and per second of {idle}. In parts of Slipway's, then in us:"
    )
    table = [
        [PEERS[peer], _ratio(rows.get((events, peer))), *(_cpu(rows.get((case, peer))) for case in (events, idle))]
        for peer in peers
    ]
    page.table(["gateway", "an event, ratio", "an event", "a second of idling"], table)


def _latency(page: Page, rows: Mapping[tuple[str, str], Document], peers: Sequence[str]) -> None:
    cases = [case for case, peer in rows if peer == OURS and rows[case, peer]["kind"] in ("half", "rate")]
    page.add("### Latency", "Milliseconds that a gateway adds to the mock engine at the same rate, median and p99:")
    table = [[PEERS[peer], *(_added(rows.get((case, peer))) for case in cases)] for peer in peers]
    page.table(["gateway", *(case.replace(", 1 KB", "") for case in cases)], table)
    half = "half load, 1 KB"
    added = {peer: rows[half, peer].get("added_p50_us") for peer in peers if (half, peer) in rows}
    page.plot(
        "gateway-latency",
        "Milliseconds added at the median, at half of each gateway's own capacity",
        [
            Bar(PEERS[peer], max(0.0, value / 1000), number(value / 1000), peer == OURS)
            for peer, value in added.items()
            if value is not None
        ],
    )


def _added(row: Document | None) -> str:
    if not row or row.get("added_p50_us") is None:
        return "-"
    return f"{number(row['added_p50_us'] / 1000)} / {number(row['added_p99_us'] / 1000)}"


def _memory(page: Page, rows: Mapping[tuple[str, str], Document], peers: Sequence[str]) -> None:
    cases = ("64 bodies of 1 MB at once", "1,000 idle streams")
    page.add("### Memory", "MiB at most, of all processes of a gateway:")
    table = [[PEERS[peer], *(_resident(rows.get((case, peer))) for case in cases)] for peer in peers]
    page.table(["gateway", *cases], table)
    page.plot(
        "gateway-memory",
        f"MiB with {cases[0]}",
        [
            Bar(
                PEERS[peer],
                rows[cases[0], peer]["resident_mib"],
                number(rows[cases[0], peer]["resident_mib"]),
                peer == OURS,
            )
            for peer in peers
            if (cases[0], peer) in rows
        ],
    )


def _resident(row: Document | None) -> str:
    return "-" if not row or row.get("resident_mib") is None else number(row["resident_mib"])


def loader(page: Page) -> None:
    page.add("## Loader", "### Downloads")
    figures = page.measured("loader")
    if figures:
        page.add(
            f"A load from a hub on the same machine into memory: {figures['mebibytes']} MiB in one file, or "
            f"{figures['files']} files, the best of {figures['rounds']} rounds. Only Slipway and sha256sum check the "
            "content. In parts of `hf download`, then in seconds, CPU seconds and MiB:"
        )
        _times(page, figures["best"], WORKS, LOADERS, "client")
        seconds = figures["best"]["large"]
        page.plot("loader", "Seconds for one large file", _bars(seconds, LOADERS))
    page.add("### Published models")
    figures = page.measured("registry")
    if figures:
        page.add(
            f"A model of {figures['mebibytes']} MiB into an empty registry and out of it. Slipway publishes from a "
            "hub, without a copy on the disk. In parts of `oras`, then in seconds, CPU seconds and MiB:"
        )
        names = {"ours": "Slipway", "oras": "`oras`"}
        _times(page, figures["best"], {"publish": "publish", "pull": "pull"}, names, "oras")


def _times(page: Page, best: Mapping[str, Any], works: Mapping[str, str], names: Mapping[str, str], base: str) -> None:
    rows = []
    for work, by_name in best.items():
        for name, one in by_name.items():
            ratio = number(one["seconds"] / by_name[base]["seconds"])
            cells = [number(one[field]) for field in ("seconds", "cpu_seconds", "peak_mebibytes")]
            rows.append([works[work], names[name], ratio, *cells])
    page.table(["work", "by", f"to {names[base]}", "seconds", "CPU seconds", "MiB"], rows)


def _bars(best: Mapping[str, Any], names: Mapping[str, str]) -> list[Bar]:
    return [
        Bar(names[name].strip("`"), one["seconds"], f"{number(one['seconds'])} s", name == "ours")
        for name, one in best.items()
    ]


def controller(page: Page) -> None:
    page.add("## Controller", "### Beside kopf")
    figures = page.measured("controller")
    if figures:
        ours, theirs = (figures["medians"][name] for name in ("slipway", "kopf"))
        page.add(
            f"{figures['models']} Krypton Models at once, median of {figures['rounds']} rounds, on an API server "
            "without other controllers. The peer makes the same children with kopf and the official client, and does "
            "less: no conditions, no events, no repair."
        )
        page.table(
            ["", "kopf in parts of Slipway", "Slipway", "kopf"],
            [
                [text, number(theirs[row] / ours[row]) if ours[row] else "-", number(ours[row]), number(theirs[row])]
                for row, text in figures["rows"].items()
            ],
        )
    page.add("### All APIs")
    figures = page.measured("controller-scale")
    if figures:
        first = next(iter(figures.values()))
        page.add(
            f"{first['resources']:,} resources of each API with all their children, and then one change among "
            f"{first['most']:,} resources beside one among 1. The API server is the one of the tests, on the same "
            "machine."
        )
        page.table(
            ["API", "change, ratio", "seconds", "CPU seconds", "requests each", "MiB", "writes at rest", "ms a change"],
            [
                [
                    name,
                    number(one["change_ms_among_most"] / one["change_ms_among_one"])
                    if one["change_ms_among_one"]
                    else "-",
                    *(
                        number(one[field])
                        for field in ("seconds", "cpu_seconds", "requests_per_resource", "memory_mib")
                    ),
                    str(one["writes_at_rest"]),
                    f"{number(one['change_ms_among_one'])} to {number(one['change_ms_among_most'])}",
                ]
                for name, one in figures.items()
            ],
        )


def ansible(page: Page) -> None:
    page.add("## Ansible", "### Beside kubernetes.core")
    figures = page.measured("ansible")
    if figures:
        medians = figures["medians"]
        ours = medians["slipway.inference.model"]
        page.add(
            f"{figures['models']} Models are applied where none exists, and then again, median of "
            f"{figures['rounds']} rounds. Whole runs of `ansible-playbook`, which takes the time of `no task` to "
            "start. In parts of Slipway, and in seconds:"
        )
        columns = list(ours)
        page.table(
            ["", *columns],
            [
                [name, *(f"{number(row[column] / ours[column])} ({number(row[column])})" for column in columns)]
                for name, row in medians.items()
            ],
        )
        page.plot(
            "ansible",
            f"Seconds to apply {figures['models']} Models",
            [
                Bar(name, row["first s"], f"{number(row['first s'])} s", name == "slipway.inference.model")
                for name, row in medians.items()
            ],
        )
    page.add("### One task")
    figures = page.measured("ansible-tasks")
    if figures:
        page.add("CPU seconds of one task, and what it needs beyond an empty one (`debug`):")
        rows = [[n, number(figures["beyond"][n]), number(s)] for n, s in figures["medians"].items()]
        page.table(["task", "beyond an empty task", "CPU seconds"], rows)
    page.add("### GPU hosts")
    figures = page.measured("ansible-hosts")
    if figures:
        page.add(
            f"`gpu_nodes` on {figures['hosts']} hosts that need no change, with {figures['forks']} forks: "
            f"{number(figures['seconds'])} s and {number(figures['cpu_seconds'])} s of CPU, of which "
            f"{number(figures['module_cpu_seconds'])} s are the modules'. One machine plays all hosts, in check "
            "mode. Real hosts run their modules themselves."
        )


def first_token(page: Page) -> None:
    page.add("## From nothing to the first token")
    figures = page.measured("demo")
    if figures:
        page.add(
            f"`make demo` takes {number(figures['seconds'])} s if the images are on the machine. It makes a cluster, "
            "installs everything and asks two models. In seconds:"
        )
        page.table(["stage", "seconds"], [[name, str(seconds)] for name, seconds in figures["stages"].items()])
        page.plot(
            "demo", "Seconds of each stage", [Bar(n, s, f"{s} s", n == "answers") for n, s in figures["stages"].items()]
        )
        again = figures["again"]
        page.add(
            f"A run of `site` with two models that changes nothing takes {number(again['seconds'])} s and "
            f"{number(again['cpu_seconds'])} s of CPU, the best of {again['runs']}."
        )
    page.add("Without images, caches and packages:")
    figures = page.measured("demo-cold")
    if figures:
        page.add(f"`make cold` takes {number(figures['seconds'])} s. In seconds:")
        page.table(["step", "seconds"], [[name, str(seconds)] for name, seconds in figures["steps"].items()])


def routing(page: Page) -> None:
    page.add("## Routing and scaling")
    for name, what in (
        ("gateway-hashing", "PrefixHash beside LeastLoad, CPU per request"),
        ("gateway-replay", "Conversations over engines with prompt caches"),
        ("gateway-churn", "Endpoints that come and go under load"),
        ("gateway-canary", "Canaries: shares, and CPU per request"),
        ("controller-autoscaler", "Autoscaler, simulated"),
    ):
        page.add(f"### {what}")
        if page.measured(name) is not None:
            rows = [[goal.verdict, goal.text] for goal in map(goal_of, page.results[name]["goals"])]
            page.table(["", "goal"], rows)


def goals(page: Page) -> None:
    page.add("## Goals")
    measured = [name for name in PARTS if page.results.get(name, {}).get("goals")]
    if not measured:
        page.add("None measured yet: `make bench`.")
        return
    rows = [
        [goal.verdict, PARTS[name], goal.text]
        for name in measured
        for goal in map(goal_of, page.results[name]["goals"])
    ]
    met = sum(verdict == "met" for verdict, *_unused in rows)
    page.add(f"{met} of {len(rows)} goals are met. A tie does not count.")
    page.table(["", "part", "goal"], rows)


# --- files -----------------------------------------------------------------------------------------------------------


def read_results(folder: Path = RESULTS) -> dict[str, Document]:
    return {file.stem: json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))}


def kept(document: Document) -> Document:
    """What is committed of a result."""
    return {name: value for name, value in document.items() if name != "rounds"}


def take(names: Sequence[str]) -> Iterator[str]:
    """Copies results. Returns what it did with each."""
    for name in names or PARTS:
        file = FOLDER / f"{name}.json"
        if not file.exists():
            yield f"{name}: there is none in {FOLDER.relative_to(ROOT)}"
            continue
        document = json.loads(file.read_text())
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / file.name).write_text(json.dumps(kept(document), indent=1) + "\n")
        yield f"{name}: taken, of {document['date']}"


def write(page: Page) -> None:
    PAGE.write_text(page.text)
    PLOTS.mkdir(parents=True, exist_ok=True)
    for file in PLOTS.glob("*.svg"):
        if file.name not in page.plots:
            file.unlink()
    for name, svg in page.plots.items():
        (PLOTS / name).write_text(svg)


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes the performance page.")
    parser.add_argument("--take", nargs="*", metavar="NAME", help="first copy results from build/bench")
    options = parser.parse_args()
    if options.take is not None:
        unknown = sorted(set(options.take) - set(PARTS))
        if unknown:
            parser.error(f"there is no result {', '.join(unknown)}. Use {', '.join(PARTS)}")
        for line in take(options.take):
            print(line)
    write(render(read_results()))


if __name__ == "__main__":
    main()
