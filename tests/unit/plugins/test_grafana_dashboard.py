# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A dashboard is built from its metrics: panels do not overlap, and errors name the faulty part."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.slipway.inference.plugins.filter.grafana_dashboard import FilterModule

grafana_dashboard = FilterModule().filters()["grafana_dashboard"]


def panel(title: str, **fields: Any) -> dict[str, Any]:
    return {"title": title, "queries": [{"expr": "up"}], **fields}


def build_dashboard(*rows: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    listed = [{"title": f"row {number}", "panels": panels} for number, panels in enumerate(rows)]
    result: dict[str, Any] = grafana_dashboard({"title": "Test", "uid": "test", "rows": listed, **fields})
    return result


def places(dashboard: dict[str, Any]) -> dict[str, tuple[int, int, int, int]]:
    """Title -> left, top, width, height."""
    return {one["title"]: tuple(one["gridPos"][side] for side in "xywh") for one in dashboard["panels"]}


def test_the_panels_of_a_row_share_its_width_and_rows_follow_each_other() -> None:
    dashboard = build_dashboard([panel("a"), panel("b"), panel("c")], [panel("d")])

    assert places(dashboard) == {
        "row 0": (0, 0, 24, 1),
        "a": (0, 1, 8, 8),
        "b": (8, 1, 8, 8),
        "c": (16, 1, 8, 8),
        "row 1": (0, 9, 24, 1),
        "d": (0, 10, 24, 8),
    }


def test_panels_that_do_not_fit_go_to_the_next_line_below_the_highest() -> None:
    dashboard = build_dashboard([panel("a", width=20, height=3), panel("b", width=4, height=5), panel("c", width=10)])

    assert places(dashboard)["c"] == (0, 6, 10, 8)


def test_every_panel_has_a_number_of_its_own_and_every_query_a_letter() -> None:
    queries = [{"expr": "up"}, {"expr": "down", "legend": "{{pod}}"}]
    dashboard = build_dashboard([panel("a"), panel("b", queries=queries)], [panel("c")])

    numbers = [one["id"] for one in dashboard["panels"]]
    assert numbers == list(range(1, 6))
    second = dashboard["panels"][2]["targets"]
    assert [(target["refId"], target["expr"], target["legendFormat"]) for target in second] == [
        ("A", "up", "__auto"),
        ("B", "down", "{{pod}}"),
    ]


def test_a_table_shows_the_present_and_lines_the_past() -> None:
    table, lines = (build_dashboard([panel("a", type=kind)])["panels"][1] for kind in ("table", "timeseries"))

    assert [(target["instant"], target["format"]) for target in table["targets"]] == [(True, "table")]
    assert [(target["instant"], target["format"]) for target in lines["targets"]] == [(False, "time_series")]
    assert "transformations" in table
    assert "transformations" not in lines


def test_every_query_goes_to_the_prometheus_that_the_reader_chooses() -> None:
    dashboard = build_dashboard([panel("a")], variables=[{"name": "model", "query": "label_values(up, model)"}])

    source, model = dashboard["templating"]["list"]
    assert (source["name"], source["type"]) == ("datasource", "datasource")
    assert (model["label"], model["definition"], model["allValue"]) == ("model", "label_values(up, model)", ".*")
    assert {one["datasource"]["uid"] for one in (model, dashboard["panels"][1])} == {"${datasource}"}


def test_a_warning_is_a_line_in_a_graph_and_a_colour_of_a_number() -> None:
    graph, number = (
        build_dashboard([panel("a", type=kind, warning=0.5)])["panels"][1] for kind in ("timeseries", "stat")
    )

    steps = [{"color": "green", "value": None}, {"color": "red", "value": 0.5}]
    assert [one["fieldConfig"]["defaults"]["thresholds"]["steps"] for one in (graph, number)] == [steps, steps]
    assert graph["fieldConfig"]["defaults"]["custom"]["thresholdsStyle"] == {"mode": "line"}


def test_all_that_is_wrong_is_reported_at_once() -> None:
    rows = [{"title": "row", "panels": [{"title": "a", "query": "up"}, panel("b", type="pie")]}]
    with pytest.raises(AnsibleFilterError) as raised:
        grafana_dashboard({"title": "Test", "uid": "a b", "rows": rows})

    assert str(raised.value).splitlines() == [
        "dashboard.uid must be a name of letters, digits, '-' and '_', not 'a b'.",
        "dashboard.rows[0].panels[0] has no key query. Did you mean queries?",
        "dashboard.rows[0].panels[0] needs queries.",
        "dashboard.rows[0].panels[1].type must be timeseries or stat or table, not 'pie'.",
    ]
