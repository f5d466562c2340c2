"""The configuration of Prometheus and Grafana: queries parse and use existing series, targets are the
controller's pods, and every alert has a page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import promql_parser
import pytest

from slipway.apis.llmkube.rules.engines import ENGINES, scaling_metric
from slipway.engines import ENGINES as ALL_ENGINES
from slipway.engines.main import table, text
from slipway.serving.status.report import SETTLED
from tests import documents, goldens

from ...docs.pages import ROOT, anchors, prose
from ..docs.test_coverage import metrics
from .rendering import Rendered

NOTHING_THERE = {"results": [{"api_found": False, "resources": []}] * 6}
OPERATOR_THERE = {"results": [{"api_found": True, "resources": []}] * 6}
PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_start_time_seconds"}
"""Of the metrics that every process of prometheus_client shows."""
FOREIGN = frozenset((Path(__file__).parent / "monitoring_metrics.txt").read_text().split())
"""Metrics of engines and exporters, as their projects document them."""
SUFFIXES = ("_bucket", "_sum", "_count")
ALERTS_PAGE = ROOT / "docs/reference/monitoring/alerts.md"
METRICS_PAGE = ROOT / "docs/reference/monitoring/metrics.md"


def role(**given: Any) -> Rendered:
    return Rendered("monitoring", **{"__monitoring_lookup": NOTHING_THERE, **given})


@cache
def rules() -> list[dict[str, Any]]:
    return rules_of(role())


def rules_of(rendering: Rendered) -> list[dict[str, Any]]:
    return [rule for group in documents.load(rendering["__monitoring_rules"])["groups"] for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


@cache
def dashboards() -> dict[str, dict[str, Any]]:
    """Name -> JSON model."""
    return {
        name: json.loads(text)
        for manifest in role()["__monitoring_objects"]
        if manifest["metadata"]["name"].startswith("slipway-dashboard-")
        for name, text in manifest["data"].items()
    }


def panels() -> Iterator[tuple[str, dict[str, Any]]]:
    for dashboard in dashboards().values():
        for panel in dashboard["panels"]:
            yield f"{dashboard['title']}: {panel['title']}", panel


@cache
def queries() -> dict[str, str]:
    """What asks -> query, as Prometheus gets it."""
    texts = {rule.get("alert") or rule["record"]: rule["expr"] for rule in rules()}
    for title, panel in panels():
        for target in panel.get("targets", []):
            text = target["expr"].replace("$__rate_interval", "5m")
            texts[f"{title} {target['refId']}"] = re.sub(r"\$\w+", ".*", text)
    return texts


def series(query: str) -> set[str]:
    """The names of the series that a query asks for. Of a pattern each of its alternatives."""
    names: set[str] = set()

    def visit(node: object) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            named = [node.name] if node.name else []
            for matcher in node.matchers.matchers:
                if matcher.name == "__name__":
                    named += alternatives(matcher.value)
            assert named, f"asks for everything: {query}"
            names.update(named)
        return True

    promql_parser.walk(promql_parser.parse(query), visit)
    return names


def alternatives(pattern: str) -> list[str]:
    """``a|b`` and ``(amd_)?gpu_(junction|edge)_temperature`` in full."""
    inner = re.search(r"\(([^()]*)\)(\??)", pattern)
    if not inner:
        return pattern.split("|")
    choices = [*inner[1].split("|"), *([""] if inner[2] else [])]
    return [name for one in choices for name in alternatives(pattern[: inner.start()] + one + pattern[inner.end() :])]


@cache
def known_metrics() -> set[str]:
    ours = metrics() | PROCESS | {"up"}
    return ours | {f"{name}{suffix}" for name in ours for suffix in SUFFIXES} | FOREIGN


# --- queries ----------------------------------------------------------------------------------------------------------


def test_text_from_a_survey_has_the_same_effect() -> None:
    texts = {"targets": "gateway,gpus", "disabled_alerts": "SlipwayGpuHot", "service_accounts": "a/b, c/d"}
    actual, meant = (
        role(**{f"monitoring_{name}": value for name, value in values.items()})
        for values in (texts, {name: value.replace(",", " ").split() for name, value in texts.items()})
    )

    assert actual["__monitoring_objects"] == meant["__monitoring_objects"]
    assert "SlipwayGpuHot" not in actual["__monitoring_rules"]
    assert actual["__monitoring_unnamed_accounts"] == []


def test_every_query_asks_for_series_that_there_are() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    unknown = {what: series(query) - known_metrics() - recorded for what, query in queries().items()}

    assert {what: names for what, names in unknown.items() if names} == {}


def test_every_recorded_series_is_used_by_a_query() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    names = {name for query in queries().values() for name in series(query)}

    assert recorded - names == set()


def test_the_metric_by_which_an_engine_is_scaled_is_among_what_it_works_on_or_has_waiting() -> None:
    named = series(queries()["slipway:engine_requests_running:sum"])
    named |= series(queries()["slipway:engine_requests_waiting:sum"])

    assert {scaling_metric(engine) for engine in ENGINES.values()} - named == set()


def test_the_roles_engine_data_matches_the_engines() -> None:
    file = ROOT / "roles/monitoring/vars/main/engines.yml"

    assert file.read_text() == text(), "run make generate"


def expressions(target: str) -> list[dict[str, Any]]:
    """By which the pods of a kind of target are found."""
    targets = Rendered("monitoring", monitoring_targets=[target])["__monitoring_targets"]
    return [expression for one in targets for expression in one.get("expressions", ())]


def test_an_engine_without_metrics_is_not_read_and_one_without_a_meaning_is_not_asked_for_it() -> None:
    read = {name for expression in expressions("engines") for name in expression.get("values", ())}

    assert "vllm" in read
    assert not {"ollama", "fasterwhisper", "personaplex"} & read
    meant = [engine.metrics.ttft_seconds for engine in ALL_ENGINES.values() if engine.metrics]
    assert table()["ttft_seconds"] == [name for name in meant if name]
    assert {"vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds"} < {*meant}


def test_alerts_do_not_take_for_failures_what_is_settled() -> None:
    for alert in ("SlipwayModelFailed", "SlipwayRolloutFailed"):
        [reasons] = re.findall(r'reason!~"([^"]*)"', queries()[alert])
        assert set(reasons.split("|")) == SETTLED


# --- alerts -----------------------------------------------------------------------------------------------------------


def test_an_alert_says_how_bad_it_is_what_it_means_and_where_to_read_on() -> None:
    sections = anchors(ALERTS_PAGE)
    for alert in alerts():
        notes = alert["annotations"]
        assert alert["labels"]["severity"] in ("critical", "warning"), alert
        assert set(notes) == {"summary", "description", "runbook_url"}, alert
        assert "\n" not in notes["summary"] + notes["description"], alert
        page, _hash, section = notes["runbook_url"].partition("#")
        assert page.endswith("/docs/reference/monitoring/alerts.md"), alert
        assert section in sections, alert


def test_every_section_is_of_an_alert_and_says_what_to_do() -> None:
    text = ALERTS_PAGE.read_text()
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", text, re.MULTILINE | re.DOTALL))

    assert set(sections) == {alert["alert"] for alert in alerts()}
    assert [name for name, section in sections.items() if "**Means.**" not in section or "**Do.**" not in section] == []


def test_alerts_can_be_left_out_and_labelled() -> None:
    rendering = role(monitoring_disabled_alerts=["SlipwayGpuHot"], monitoring_alert_labels={"team": "inference"})

    assert "SlipwayGpuHot" not in {rule.get("alert") for rule in rules_of(rendering)}
    assert {rule["labels"]["team"] for rule in rules_of(rendering) if "alert" in rule} == {"inference"}
    assert [rule for rule in rules_of(role(monitoring_alerts=False)) if "alert" in rule] == []


def test_only_monitored_targets_have_alerts() -> None:
    names = {rule.get("alert") for rule in rules_of(role(monitoring_targets=["gateway"]))}

    assert "SlipwayGatewayDown" in names
    assert not names & {"SlipwayControllerDown", "SlipwayModelFailed", "SlipwayGpuHot", "SlipwayModelQueues"}


def test_settings_that_mean_nothing_are_found() -> None:
    rendering = role(
        monitoring_disabled_alerts=["SlipwayGpuHot", "SlipwayHot"], monitoring_service_accounts=["prometheus", "a/b"]
    )

    assert rendering["__monitoring_unknown_alerts"] == ["SlipwayHot"]
    assert rendering["__monitoring_unnamed_accounts"] == ["prometheus"]


# --- targets ----------------------------------------------------------------------------------------------------------


@cache
def jobs() -> list[dict[str, Any]]:
    configs: list[dict[str, Any]] = documents.load(role()["__monitoring_scrape"])["scrape_configs"]
    return configs


def monitors() -> list[dict[str, Any]]:
    rendering = role(__monitoring_lookup=OPERATOR_THERE, __monitoring_prometheuses={"resources": []})
    return [manifest["spec"] for manifest in rendering["__monitoring_objects"] if manifest["kind"] == "PodMonitor"]


def selects(selector: str, labels: dict[str, str]) -> bool:
    """Whether pods with these labels are among those that a selector finds, as the API server reads it."""
    for term in re.findall(r"[^,(]+(?:\([^)]*\))?", selector):
        name, equals, value = term.strip().partition("=")
        listed = re.fullmatch(r"(\S+) in \(([^)]*)\)", term.strip())
        if listed and labels.get(listed[1]) not in listed[2].split(","):
            return False
        if not listed and (name not in labels or (equals and labels[name] != value)):
            return False
    return True


def engines() -> Iterator[tuple[str, dict[str, str], list[str]]]:
    """Example, labels and names of ports of the pods of every model that the tests plan."""
    for example in goldens.examples(*(ROOT / "tests/unit/apis/golden").iterdir()):
        for child in goldens.expected(example)["children"]:
            template = child["spec"].get("template", {}) if child["kind"] == "Deployment" else {}
            if "metadata" in template:
                ports = [port.get("name") for one in template["spec"]["containers"] for port in one.get("ports", [])]
                yield f"{example.parent.name}/{example.stem}", template["metadata"]["labels"], ports


def runtime(labels: dict[str, str]) -> str:
    """The engine of a pod."""
    if "krypton.ai/model" in labels:
        return "llamacpp"
    named = ("inference.llmkube.dev/runtime", "ome.io/engine", "app.kubernetes.io/name")
    return next((labels[name] for name in named if name in labels), "unknown")


@pytest.mark.parametrize("planned", list(engines()), ids=lambda planned: planned[0])
def test_the_pods_of_a_model_are_read_once_if_their_engine_has_metrics(
    planned: tuple[str, dict[str, str], list[str]],
) -> None:
    _file, labels, ports = planned
    reading = [job for job in jobs() if selects(job["kubernetes_sd_configs"][0]["selectors"][0]["label"], labels)]
    silent = runtime(labels) in ("ollama", "fasterwhisper", "personaplex", "unknown")

    assert len(reading) == (0 if silent else 1)
    for job in reading:
        assert [port for port in ports if re.fullmatch(scraped_port(job["relabel_configs"]), port or "")]
        assert relabelled(job["relabel_configs"], labels)["runtime"] == runtime(labels)


def test_ports_of_omes_engines_are_found_by_either_name_that_its_runtimes_give_them() -> None:
    [job] = [job for job in jobs() if job["job_name"] == "slipway-engines-ome"]
    assert scraped_port(job["relabel_configs"]) == "http|http1"


def scraped_port(relabelings: list[dict[str, Any]]) -> str:
    [port] = [
        one["regex"]
        for one in relabelings
        if one.get("source_labels") == ["__meta_kubernetes_pod_container_port_name"] and one["action"] == "keep"
    ]
    return str(port)


def relabelled(relabelings: list[dict[str, Any]], labels: dict[str, str]) -> dict[str, str]:
    """The labels that a target gets from its pod's, as Prometheus does it."""
    meta = {f"__meta_kubernetes_pod_label_{re.sub(r'[^a-zA-Z0-9_]', '_', name)}": labels[name] for name in labels}
    target_labels = {}
    for one in relabelings:
        source = ";".join(meta.get(name, "") for name in one.get("source_labels", []))
        match = re.fullmatch(str(one.get("regex", "(.*)")), source)
        if "target_label" in one and match:
            target_labels[one["target_label"]] = match.expand(one.get("replacement", "$1").replace("$", "\\"))
    return target_labels


@pytest.mark.parametrize(
    ("labels", "target"),
    [
        ({"krypton.ai/model": "tiny"}, {"model": "tiny", "runtime": "llamacpp"}),
        (
            {"app": "model", "model": "a", "app.kubernetes.io/name": "vllm", "app.kubernetes.io/managed-by": "kubeai"},
            {"model": "model-a", "runtime": "vllm"},
        ),
        (
            {"inference.llmkube.dev/service": "b", "inference.llmkube.dev/runtime": "tgi"},
            {"model": "b", "runtime": "tgi"},
        ),
    ],
)
def test_a_target_is_called_as_its_service_is_at_the_gateway(labels: dict[str, str], target: dict[str, str]) -> None:
    [job] = [job for job in jobs() if selects(job["kubernetes_sd_configs"][0]["selectors"][0]["label"], labels)]
    given = relabelled(job["relabel_configs"], labels)

    assert {name: given[name] for name in ("job", "model", "runtime")} == {"job": "slipway-engines", **target}


def test_gateway_and_controller_are_read_where_their_roles_say() -> None:
    for name, container in (("gateway", "__gateway_control"), ("controller", "__controller_container")):
        [job] = [job for job in jobs() if job["job_name"] == f"slipway-{name}"]

        assert scraped_port(job["relabel_configs"]) in [port["name"] for port in Rendered(name)[container]["ports"]]
        assert job["honor_labels"], "its series name the namespace of a model"
        assert job["kubernetes_sd_configs"][0]["namespaces"] == {"names": ["slipway-system"]}
        label = job["kubernetes_sd_configs"][0]["selectors"][0]["label"]
        assert label == f"app.kubernetes.io/name=slipway-{name}"


def test_the_prometheus_operator_gets_the_same_as_a_plain_prometheus() -> None:
    assert [as_job(monitor) for monitor in monitors()] == [
        {
            "honor_labels": job["honor_labels"],
            "port": scraped_port(job["relabel_configs"]),
            "path": job["metrics_path"],
            "label": job["kubernetes_sd_configs"][0]["selectors"][0]["label"],
            "namespaces": job["kubernetes_sd_configs"][0].get("namespaces", {}).get("names"),
            # The operator gives namespace, pod and container by itself.
            "labels": [
                one
                for one in map(plain, job["relabel_configs"])
                if one["target"] and one["target"] not in ("namespace", "pod", "container")
            ],
        }
        for job in jobs()
    ]


def as_job(monitor: dict[str, Any]) -> dict[str, Any]:
    endpoint, *others = monitor["podMetricsEndpoints"]
    assert all({**other, "port": endpoint["port"]} == endpoint for other in others)
    selector = monitor["selector"]
    terms = [f"{name}={value}" for name, value in sorted(selector["matchLabels"].items())]
    terms += [
        term["key"] + (f" in ({','.join(term['values'])})" if term["operator"] == "In" else "")
        for term in selector["matchExpressions"]
    ]
    return {
        "honor_labels": endpoint["honorLabels"],
        "port": "|".join(one["port"] for one in monitor["podMetricsEndpoints"]),
        "path": endpoint["path"],
        "label": ",".join(terms),
        "namespaces": monitor["namespaceSelector"].get("matchNames"),
        "labels": [plain(one) for one in endpoint["relabelings"]],
    }


def plain(relabeling: dict[str, Any]) -> dict[str, Any]:
    """As both write it."""
    return {
        "source": relabeling.get("source_labels") or relabeling.get("sourceLabels"),
        "target": relabeling.get("target_label") or relabeling.get("targetLabel"),
        "regex": relabeling.get("regex"),
        "replacement": relabeling.get("replacement"),
    }


# --- which Prometheus takes it ----------------------------------------------------------------------------------------


def choices(spec: dict[str, Any], namespace: str = "monitoring", **labels: str) -> list[bool]:
    one = {"metadata": {"name": "main", "namespace": namespace}, "spec": spec}
    other = {"metadata": {"name": "other", "namespace": "x"}, "spec": {}}
    space = {"metadata": {"name": "slipway-system", "labels": {"watched": "yes"}}}
    verdicts = role(
        monitoring_labels=labels,
        __monitoring_prometheuses={"resources": [one, other]},
        __monitoring_namespaces={"resources": [space]},
    )["__monitoring_choices"]
    return [choice["takes"] for choice in verdicts if choice["name"].endswith("/main")]


@pytest.mark.parametrize(
    ("selector", "namespaces", "taken"),
    [
        ({}, {}, True),
        ({"matchLabels": {"release": "stack"}}, {}, True),
        ({"matchLabels": {"release": "other"}}, {}, False),
        ({}, {"matchLabels": {"watched": "yes"}}, True),
        ({}, {"matchLabels": {"watched": "no"}}, False),
        ({}, None, False),
        (None, {}, False),
    ],
)
def test_a_prometheus_takes_what_its_selectors_ask_for(selector: Any, namespaces: Any, taken: bool) -> None:
    kinds = {"podMonitorSelector": selector, "ruleSelector": selector}
    spaces = {"podMonitorNamespaceSelector": namespaces, "ruleNamespaceSelector": namespaces}

    assert choices({**kinds, **spaces}, release="stack") == [taken]


def test_a_prometheus_without_a_namespace_selector_reads_its_own_namespace() -> None:
    assert choices({"podMonitorSelector": {}, "ruleSelector": {}}, namespace="slipway-system") == [True]


def test_a_rule_that_cannot_be_evaluated_is_named_with_the_reason_and_one_of_another_is_not_ours() -> None:
    rule = {"name": "SlipwayGatewayDown", "health": "err", "lastError": "many-to-many"}
    groups = [{"name": "slipway.gateway", "rules": [rule]}, {"name": "theirs", "rules": [{**rule, "name": "Theirs"}]}]
    rendering = role(__monitoring_rules_response={"json": {"data": {"groups": groups}}})

    assert rendering["__monitoring_rules_broken"] == ["SlipwayGatewayDown (many-to-many)"]
    assert rendering["__monitoring_rules_lacking"] == [
        f"slipway.{name}" for name in ("artifacts", "controller", "depot", "engines", "gpus", "models")
    ]


# --- dashboards -------------------------------------------------------------------------------------------------------


def test_panels_fill_their_rows_and_do_not_overlap() -> None:
    for dashboard in dashboards().values():
        taken: set[tuple[int, int]] = set()
        for panel in dashboard["panels"]:
            place = panel["gridPos"]
            columns, lines = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
            cells = {(column, line) for column in columns for line in lines}
            assert not cells & taken
            assert max(columns) < 24
            taken |= cells


def test_dashboards_filter_by_their_own_variables() -> None:
    for dashboard in dashboards().values():
        names = {variable["name"] for variable in dashboard["templating"]["list"]}
        used = set(re.findall(r'"\$(\w+)"', json.dumps(dashboard["panels"]).replace('\\"', '"')))
        assert used <= names, dashboard["title"]
        assert names - used == {"datasource"} or names - used <= {"datasource", "runtime"}, dashboard["title"]


def test_a_dashboard_fits_into_a_config_map() -> None:
    assert [name for name, board in dashboards().items() if len(json.dumps(board, indent=2)) > 500_000] == []


def test_the_page_tells_every_dashboard_and_every_recorded_series() -> None:
    text = "\n".join(prose(METRICS_PAGE))

    assert [board["title"] for board in dashboards().values() if board["title"] not in text] == []
    assert [rule["record"] for rule in rules() if "record" in rule and f"`{rule['record']}`" not in text] == []
