# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: grafana_dashboard
short_description: Render a Grafana dashboard from a list of panels
version_added: 0.4.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Converts a short description of variables, rows, panels and queries to the JSON model for Grafana 10 and later. The
    order of the panels determines their positions.
  - All queries use the Prometheus data source that is selected at the top of the dashboard.
  - Reports all errors in the description together, each with the path of its key.
  - The role P(slipway.inference.monitoring#role) uses it.
positional: _input
options:
  _input:
    description:
      - A dictionary with C(title), C(uid) and C(rows), and optionally C(description), C(tags) and C(variables).
      - A variable has C(name), C(query), such as C(label_values) of a series, and optionally C(label).
      - A row has C(title) and C(panels). Panels without C(width), in 24ths, get equal widths, with up to six in a line.
      - A panel has C(title) and C(queries), each with C(expr) and optionally C(legend). Optional keys are
        C(description), C(type) (V(timeseries), V(stat) or V(table)), C(unit), C(stack), C(max), C(height) and
        C(warning), the value above which a number is red.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Write a dashboard
  ansible.builtin.copy:
    content: "{{ dashboard | slipway.inference.grafana_dashboard | to_nice_json }}"
    dest: /var/lib/grafana/dashboards/answers.json
    mode: "0644"
  vars:
    dashboard:
      title: Responses
      uid: responses
      rows:
        - title: By status
          panels:
            - title: Responses per second
              unit: reqps
              queries:
                - expr: sum by (code) (rate(slipway_gateway_responses_total[$__rate_interval]))
                  legend: "{{ '{{code}}' }}"
"""

RETURN = r"""
_value:
  description: The JSON model of the dashboard.
  type: dict
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.slipway.inference.plugins.plugin_utils._shapes import (
    TEXT,
    WHOLE,
    Items,
    Keys,
    Leaf,
    matching,
    one_of,
    read,
)

COLUMNS = 24
MOST_IN_LINE = 6
HEIGHTS = {"timeseries": 8, "stat": 4, "table": 8}
# The data source is a variable, so that a dashboard works with whatever Prometheus Grafana knows.
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
NAME = matching("a name of letters, digits, '-' and '_'", r"[A-Za-z0-9_-]{1,40}")


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    return float(value)


NUMBER = Leaf("a number", _number)
FLAG = Leaf("true or false", bool)


def _needs(*names: str) -> Any:
    def check(value: Mapping[str, Any]) -> str:
        missing = [name for name in names if name not in value]
        return f"needs {' and '.join(missing)}" if missing else ""

    return check


QUERY = Keys({"expr": TEXT, "legend": TEXT}, _needs("expr"))
PANEL = Keys(
    {
        "title": TEXT,
        "description": TEXT,
        "type": one_of(*HEIGHTS),
        "unit": TEXT,
        "queries": Items(QUERY),
        "width": WHOLE,
        "height": WHOLE,
        "stack": FLAG,
        "max": NUMBER,
        "warning": NUMBER,
    },
    _needs("title", "queries"),
)
BOARD = Keys(
    {
        "title": TEXT,
        "uid": NAME,
        "description": TEXT,
        "tags": Items(TEXT),
        "variables": Items(Keys({"name": NAME, "label": TEXT, "query": TEXT}, _needs("name", "query"))),
        "rows": Items(Keys({"title": TEXT, "panels": Items(PANEL)}, _needs("title", "panels"))),
    },
    _needs("title", "uid", "rows"),
)


def grafana_dashboard(value: Any) -> dict[str, Any]:
    problems: list[str] = []
    board = read(value, BOARD, "dashboard", problems)
    if problems:
        raise AnsibleFilterError("\n".join(problems))
    tags = board.get("tags", [])
    return {
        "uid": board["uid"],
        "title": board["title"],
        "description": board.get("description", ""),
        "tags": tags,
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [_link(tag) for tag in tags[:1]],
        "templating": {"list": [_source(), *(_variable(one) for one in board.get("variables", []))]},
        "panels": list(_panels(board["rows"])),
    }


def _link(tag: str) -> dict[str, Any]:
    """Return a link to the other dashboards with this tag, which keeps the time range and the variables."""
    return {
        "type": "dashboards",
        "title": tag,
        "tags": [tag],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
    }


def _source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _variable(variable: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dashboard variable for which users can select any number of values. All values are selected by
    default."""
    return {
        "name": variable["name"],
        "label": variable.get("label", variable["name"]),
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": variable["query"], "refId": variable["name"]},
        "definition": variable["query"],
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _panels(rows: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the heading and the panels of each row, from top to bottom and from left to right."""
    number = top = 0
    for row in rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row["title"],
            "collapsed": False,
            "gridPos": _place(0, top, COLUMNS, 1),
            "panels": [],
        }
        top, left, lowest = top + 1, 0, top + 1
        for panel in row["panels"]:
            width = panel.get("width", COLUMNS // min(len(row["panels"]), MOST_IN_LINE))
            if left + width > COLUMNS:
                left, top = 0, lowest
            height = panel.get("height", HEIGHTS[panel.get("type", "timeseries")])
            number += 1
            yield {"id": number, "gridPos": _place(left, top, width, height), **_panel(panel)}
            left, lowest = left + width, max(lowest, top + height)
        top = lowest


def _place(left: int, top: int, width: int, height: int) -> dict[str, int]:
    return {"x": left, "y": top, "w": width, "h": height}


def _panel(panel: Mapping[str, Any]) -> dict[str, Any]:
    kind = panel.get("type", "timeseries")
    model = {
        "type": kind,
        "title": panel["title"],
        "description": panel.get("description", ""),
        "datasource": SOURCE,
        "targets": [_target(query, position, kind) for position, query in enumerate(panel["queries"])],
        "fieldConfig": {"defaults": _field(panel, kind), "overrides": []},
        "options": OPTIONS[kind],
    }
    if kind == "table":
        # Show the labels and the value of an instant query, but not its time.
        hidden = {"excludeByName": {"Time": True}, "renameByName": {"Value": panel["title"]}}
        model["transformations"] = [{"id": "organize", "options": hidden}]
    return model


OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "colorMode": "value",
        "graphMode": "area",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    },
    "table": {"showHeader": True, "cellHeight": "sm"},
}


def _field(panel: Mapping[str, Any], kind: str) -> dict[str, Any]:
    field: dict[str, Any] = {"unit": panel.get("unit", "short"), "min": 0}
    if "max" in panel:
        field["max"] = panel["max"]
    if "warning" in panel:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": panel["warning"]}]
        field["thresholds"] = {"mode": "absolute", "steps": steps}
    if kind == "timeseries":
        stacking = {"mode": "normal" if panel.get("stack") else "none", "group": "A"}
        field["custom"] = {
            "drawStyle": "line",
            "fillOpacity": 25 if panel.get("stack") else 5,
            "showPoints": "never",
            "stacking": stacking,
            "thresholdsStyle": {"mode": "line" if "warning" in panel else "off"},
        }
    return field


def _target(query: Mapping[str, Any], position: int, kind: str) -> dict[str, Any]:
    """Return the target for a query. Tables show the current value; other panels show the whole time range."""
    now = kind == "table"
    return {
        "refId": chr(ord("A") + position),
        "datasource": SOURCE,
        "expr": query["expr"],
        "legendFormat": query.get("legend", "__auto"),
        "instant": now,
        "range": not now,
        "format": "table" if now else "time_series",
    }


class FilterModule:
    """Entry point from which Ansible loads the filter."""

    def filters(self) -> dict[str, Any]:
        return {"grafana_dashboard": grafana_dashboard}
