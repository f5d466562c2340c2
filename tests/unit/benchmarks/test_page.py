"""docs/explain/performance.md shows the committed results, the origin of each, and which ones are missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import outcome
import page
import plots
import pytest

MACHINE = {"cpu": "A processor", "cores": 8, "memory_gib": 31.4, "kernel": "6.12.1", "python": "3.11.2"}
FAST = {"seconds": 2.0, "cpu_seconds": 1.0, "peak_mebibytes": 30.0}
SLOW = {"seconds": 5.0, "cpu_seconds": 6.0, "peak_mebibytes": 300.0}
SCALE = {
    "resources": 1000,
    "most": 5000,
    "seconds": 20.0,
    "cpu_seconds": 10.0,
    "requests_per_resource": 7.0,
    "memory_mib": 120.0,
    "writes_at_rest": 0,
    "change_ms_among_one": 4.0,
    "change_ms_among_most": 5.0,
}
KUBERNETES_CORE = {"first s": 30.0, "again s": 30.0}


def row(case: str, peer: str, kind: str = "closed", **more: Any) -> dict[str, Any]:
    return {
        "case": case,
        "kind": kind,
        "peer": peer,
        "cpu_us": 40.0,
        "spread_percent": 12.0,
        "resident_mib": 64.0,
    } | more


def beside(best: float, *, tie: bool = False) -> dict[str, Any]:
    return {"best": best, "low": 0.9 if tie else best, "high": best, "tie": tie}


FIGURES: dict[str, Any] = {
    "gateway": {
        "rounds": 5,
        "instructions_by": "callgrind",
        "rows": [
            row("1 KB, model first", "slipway", instructions=250_000.0),
            row("1 KB, model first", "go-tuned", cpu_us=120.0, to_ours=beside(3.0), instructions="it crashes"),
            row("1 MB, model first", "go-tuned", cpu_us=41.0, to_ours=beside(1.02, tie=True)),
            {"case": "1 KB, model first", "kind": "closed", "peer": "envoy", "problem": "it ended at once"},
            row("50 streams of 200 events/s", "slipway", "events", cpu_us=4.0),
            row("50 streams of 200 events/s", "go-tuned", "events", cpu_us=9.0, to_ours=beside(2.25)),
            row("half load, 1 KB", "slipway", "half", added_p50_us=90, added_p99_us=400),
            row("64 bodies of 1 MB at once", "slipway", "memory"),
        ],
    },
    "loader": {"mebibytes": 1024, "files": 500, "rounds": 3, "best": {"large": {"ours": FAST, "client": SLOW}}},
    "registry": {"mebibytes": 4096, "best": {"pull": {"ours": FAST, "oras": SLOW}}},
    "controller": {
        "models": 1000,
        "rounds": 2,
        "rows": {"burst_seconds": "all children, s", "idle_writes": "writes at rest"},
        "medians": {
            "slipway": {"burst_seconds": 20.0, "idle_writes": 0},
            "kopf": {"burst_seconds": 60.0, "idle_writes": 0},
        },
    },
    "controller-scale": {"ome": SCALE},
    "ansible": {
        "models": 100,
        "rounds": 3,
        "medians": {"slipway.inference.model": {"first s": 3.0, "again s": 2.0}, "k8s in a loop": KUBERNETES_CORE},
    },
    "ansible-tasks": {"beyond": {"model_info": 0.1}, "medians": {"model_info": 0.2}},
    "ansible-hosts": {"hosts": 200, "forks": 50, "seconds": 400.0, "cpu_seconds": 790.0, "module_cpu_seconds": 700.0},
    "demo": {
        "seconds": 90.0,
        "stages": {"cluster": 26, "answers": 4},
        "again": {"seconds": 25.0, "cpu_seconds": 31.0, "runs": 3},
    },
    "demo-cold": {"seconds": 600, "steps": {"Create a cluster": 80}},
}


def document(name: str, **more: Any) -> dict[str, Any]:
    goal = outcome.Goal(f"a goal of {name}", 2.0, 1.0, "s")
    return {
        "machine": MACHINE,
        "date": "2026-11-29",
        "command": f"python benchmarks/{name}.py",
        "versions": {"slipway.inference": "0.4.0 (abc)", "peer": "1.2"},
        "goals": [vars(goal) | {"met": goal.met, "verdict": goal.verdict}],
        "missing": {},
        "figures": FIGURES.get(name, {"any": 1}),
        **more,
    }


def everything() -> dict[str, Any]:
    return {name: document(name) for name in page.PARTS}


def section(text: str, title: str) -> str:
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_the_page_is_current() -> None:
    current = page.render(page.read_results())
    assert page.PAGE.read_text() == current.text, "run python benchmarks/page.py"
    plots_there = {file.name: file.read_text() for file in page.PLOTS.glob("*.svg")}
    assert plots_there == current.plots, "run python benchmarks/page.py"


def test_committed_results_are_no_quick_runs_and_carry_no_rounds() -> None:
    for name, result in page.read_results().items():
        assert name in page.PARTS
        assert not result["quick"]
        assert "rounds" not in result


def test_each_result_names_its_machine_date_versions_and_command() -> None:
    text = page.render(everything()).text
    for name in page.PARTS:
        assert (
            "*A processor, 8 cores, 31 GiB, Linux 6.12.1; 2026-11-29; slipway.inference 0.4.0 (abc), peer 1.2; "
            f"`PYTHONPATH=src python benchmarks/{name}.py`*"
        ) in text
    assert "Not measured" not in text


def test_a_missing_measurement_is_listed_with_its_command() -> None:
    text = page.render({}).text
    for part in page.PARTS.values():
        assert f"Not measured yet: `scripts/bench.sh {part}`." in text
        assert (page.ROOT / f"benchmarks/{part}.py").exists()
    assert page.render({}).plots == {}


def test_a_missing_peer_is_named_with_its_reason() -> None:
    results = {"gateway": document("gateway", missing={"litellm": "pip install failed"})}
    assert "Not measured: LiteLLM, because pip install failed." in page.render(results).text


def test_a_noisy_measurement_carries_a_warning() -> None:
    noisy = row("1 KB, model first", "slipway", spread_percent=67.0)
    shown = page.render({"gateway": document("gateway", figures={**FIGURES["gateway"], "rows": [noisy]})}).text
    assert "up to 67 % above the best one" in shown
    assert "not quiet" not in page.render({"gateway": document("gateway")}).text


def test_ratios_come_before_times_and_a_tie_is_called_one() -> None:
    cpu = section(page.render(everything()).text, "Gateway")
    assert "| Go, tuned | 3 | - | - | tie |" in cpu
    assert "| Go, tuned | 120 (+12 %) | - | - | 41 (+12 %) |" in cpu
    assert cpu.index("| tie |") < cpu.index("120 (+12 %)")
    assert "| Slipway | 250 |" in cpu
    assert "| Go, tuned | not available |" in cpu
    assert "Envoy" not in cpu


@pytest.mark.parametrize(
    ("title", "row"),
    [
        ("Gateway", "| Slipway | 0.09 / 0.40 |"),
        ("Gateway", "| Slipway | 64 | - |"),
        ("Gateway", "| Slipway | 1 | 4 (+12 %) | - |"),
        ("Gateway", "| Go, tuned | 2.25 | 9 (+12 %) | - |"),
        ("Gateway", "| none (direct) | 0 | 0 | 0 | 0 |"),
        ("Loader", "| one large file | Slipway | 0.40 | 2 | 1 | 30 |"),
        ("Loader", "| pull | `oras` | 1 | 5 | 6 | 300 |"),
        ("Controller", "| all children, s | 3 | 20 | 60 |"),
        ("Controller", "| writes at rest | - | 0 | 0 |"),
        ("Controller", "| ome | 1.25 | 20 | 10 | 7 | 120 | 0 | 4 to 5 |"),
        ("Ansible", "| k8s in a loop | 10 (30) | 15 (30) |"),
        ("Ansible", "| model_info | 0.10 | 0.20 |"),
        ("Ansible", "on 200 hosts that need no change, with 50 forks: 400 s and 790 s of CPU, of which 700 s are"),
        ("From nothing to the first token", "changes nothing takes 25 s and 31 s of CPU, the best of 3."),
        ("From nothing to the first token", "| Create a cluster | 80 |"),
        ("Goals", "| MISSED | loader/run | a goal of loader: 2 s, at most 1 s |"),
    ],
)
def test_every_section_shows_its_figures(title: str, row: str) -> None:
    assert row in section(page.render(everything()).text, title)


def test_every_plot_is_an_image_that_the_page_shows() -> None:
    full = page.render(everything())
    assert set(full.plots) == {
        *("gateway-cpu-1-kb.svg", "gateway-cpu-1-mb.svg", "gateway-latency.svg", "gateway-memory.svg"),
        *("loader.svg", "ansible.svg", "demo.svg"),
    }
    for name, svg in full.plots.items():
        assert f"(../images/performance/{name})" in full.text
        assert parsed(svg).tag == f"{SVG}svg"


SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg: str) -> ET.Element:
    return ET.fromstring(svg)  # noqa: S314 - our own text


def lengths(svg: str) -> list[float]:
    return [float(bar.get("width", 0)) for bar in parsed(svg).iter(f"{SVG}rect")]


def test_bars_are_as_long_as_their_values() -> None:
    svg = plots.bars("<A> & B", [plots.Bar("one", 10, "10"), plots.Bar("half", 5, "5", ours=True)])
    longest, half = lengths(svg)
    assert longest == 2 * half == plots.WIDTH - plots.LABEL - plots.VALUE
    assert parsed(svg).findtext(f"{SVG}title") == "<A> & B"


def test_bars_that_differ_too_much_have_a_logarithmic_scale_which_the_title_says() -> None:
    svg = plots.bars("Title", [plots.Bar("one", 1, "1"), plots.Bar("ten", 10, "10"), plots.Bar("most", 100, "100")])
    one, ten, most = lengths(svg)
    assert ten - one == pytest.approx(most - ten)
    assert "Title (logarithmic scale)" in svg


def test_results_are_taken_without_their_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "ROOT", tmp_path)
    monkeypatch.setattr(page, "FOLDER", tmp_path / "build")
    monkeypatch.setattr(page, "RESULTS", tmp_path / "results")
    (tmp_path / "build").mkdir()
    (tmp_path / "build/loader.json").write_text(json.dumps(document("loader", rounds=[1, 2])))
    assert list(page.take(["loader", "ansible"])) == ["loader: taken, of 2026-11-29", "ansible: there is none in build"]
    assert page.read_results(tmp_path / "results") == {"loader": document("loader")}
