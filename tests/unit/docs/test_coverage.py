"""The pages tell everything that the code shows to a user."""

from __future__ import annotations

import ast
import itertools
import re
from collections import Counter
from collections.abc import Container, Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import msgspec
import pytest
import reference

from slipway import __version__
from slipway.apis.deckhouse.metrics import NAMES as MODELS_METRICS
from slipway.apis.krypton.types import ModelSpec, ModelStatus
from slipway.apis.kubeai import settings as config
from slipway.apis.kubeai import system_yaml
from slipway.apis.kubeai import types as kubeai
from slipway.apis.llmkube.rules.engines import ENGINES as LLMKUBE_ENGINES
from slipway.apis.llmkube.types import model as model_types
from slipway.apis.llmkube.types import runtime as runtime_types
from slipway.apis.llmkube.types import service as service_types
from slipway.apis.ome.types import benchmark as ome_benchmarks
from slipway.apis.ome.types import component as ome_components
from slipway.apis.ome.types import model as ome_models
from slipway.apis.ome.types import runtime as ome_runtimes
from slipway.apis.ome.types import service as ome_services
from slipway.controller.settings import ACCELERATORS, ControllerSettings
from slipway.engines.definition.python import PYTHON
from slipway.engines.programs.llamacpp import LLAMACPP
from slipway.engines.programs.ollama import OLLAMA
from slipway.gateway import errors
from slipway.gateway.settings import Settings as GatewaySettings
from slipway.kube.api import errors as client_errors
from slipway.serving.containers.diagnosis import MISSING
from slipway.serving.routing import paths
from slipway.serving.routing.route import Route
from tests import documents

from ...docs.pages import PAGES, ROOT, anchors, count_words

DOCS = ROOT / "docs"
SOURCES = sorted((ROOT / "src/slipway").rglob("*.py"))
REASON_CALLS = {"Failure": (0, 2), "InvalidSpecError": (0,), "Rejection": (0,), "Pending": (0,), "Condition": (2,)}
"""Call -> positions that the reason may have among its arguments."""
METRIC_CALLS = {
    "Counter": "_total", "CounterMetricFamily": "_total",
    "Gauge": "", "GaugeMetricFamily": "", "Histogram": "", "Summary": "", "SummaryMetricFamily": "",
}  # fmt: skip
"""Call -> what the text format adds to the name."""
REASON = re.compile(r"[A-Z][A-Za-z]+")


RETRIED = {
    error.reason for error in vars(client_errors).values() if isinstance(error, type) and hasattr(error, "reason")
} - {"Invalid", "Forbidden", "NotFound", "Unauthorized", "Unreachable"}
"""Reasons of the API server that no condition shows: the controller retries, and shows Retrying."""


def name_of(source: Path) -> str:
    """The name by which a source is imported."""
    return ".".join(source.relative_to(ROOT / "src").with_suffix("").parts)


def constants_of(tree: ast.Module) -> dict[str, str]:
    """The string constants of a module, also those of an assignment to several names."""
    assignments = [node for node in tree.body if isinstance(node, ast.Assign)]
    sides = ((elements(node.targets[0]), elements(node.value)) for node in assignments)
    pairs = [pair for targets, values in sides for pair in zip(targets, values, strict=False)]
    return {
        target.id: value.value
        for target, value in pairs
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str)
    }


def elements(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


@cache
def modules() -> tuple[tuple[ast.Module, dict[str, str]], ...]:
    """The syntax tree of each source, with the string constants that it has, imports, or finds in imported modules."""
    trees = {name_of(source): ast.parse(source.read_text()) for source in SOURCES}
    own = {name: constants_of(tree) for name, tree in trees.items()}
    sources = []
    for name, tree in trees.items():
        constants = {}
        for node in ast.walk(tree):
            for alias in node.names if isinstance(node, ast.ImportFrom) else ():
                local, there = alias.asname or alias.name, own.get(str(node.module), {})
                module = own.get(f"{node.module}.{alias.name}", {})
                constants |= {f"{local}.{constant}": value for constant, value in module.items()}
                constants |= {local: there[alias.name]} if alias.name in there else {}
        sources.append((tree, constants | own[name]))
    return tuple(sources)


def calls(names: Container[str]) -> Iterator[tuple[ast.Call, str, dict[str, str]]]:
    """Calls of these names in the sources, with the string constants of their module."""
    for tree, constants in modules():
        for node in ast.walk(tree):
            name = getattr(getattr(node, "func", None), "id", "")
            if isinstance(node, ast.Call) and name in names:
                yield node, name, constants


def texts(node: ast.expr, constants: dict[str, str]) -> list[str]:
    """Returns the strings that an expression can evaluate to, as far as it is literal."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.Name | ast.Attribute):
        name = ast.unparse(node)
        return [constants[name]] if name in constants else []
    inner = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    return (
        [text for child in inner for text in texts(child, constants)]
        if isinstance(node, ast.IfExp | ast.BoolOp)
        else []
    )


def is_prose(node: ast.expr) -> bool:
    """Whether an expression is a message: a text with several words, or one with values in it."""
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
    )


def reason_nodes(node: ast.AST) -> list[ast.expr]:
    """The expressions of a node that may be reasons: arguments of calls, values of variables, and what precedes a
    message in a tuple."""
    if isinstance(node, ast.Tuple):
        return [first for first, second in itertools.pairwise(node.elts) if is_prose(second)]
    if isinstance(node, ast.Assign):
        pairs = zip(elements(node.targets[0]), elements(node.value), strict=False)
        return [value for target, value in pairs if getattr(target, "id", "") == "reason"]
    if not isinstance(node, ast.Call):
        return []
    positions = REASON_CALLS.get(getattr(node.func, "id", ""), ())
    keywords = [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
    return [*keywords, *(node.args[position] for position in positions if position < len(node.args))]


def reasons() -> set[str]:
    candidates = {row.reason for row in (*LLAMACPP.log_patterns, *OLLAMA.log_patterns, *PYTHON)}
    candidates |= {row.reason for row in MISSING}
    for tree, constants in modules():
        for node in ast.walk(tree):
            candidates.update(*(texts(expression, constants) for expression in reason_nodes(node)))
    return {reason for reason in candidates if REASON.fullmatch(reason)} - RETRIED


def metrics() -> set[str]:
    metric_names = set()
    for call, name, constants in calls(METRIC_CALLS):
        for metric in texts(call.args[0], constants) if call.args else []:
            metric_names.add(metric.removesuffix("_total") + METRIC_CALLS[name])
    return metric_names | MODELS_METRICS


def words(page: str) -> set[str]:
    """What the page shows as code."""
    return set(re.findall(r"`([^`\n]+)`", (DOCS / page).read_text()))


def test_every_reason_is_found_in_the_source() -> None:
    expected = {
        "ImagePullBackOff", "CrashLoopBackOff", "DownloadFailed", "Unschedulable", "StartupTimeout", "OOMKilled",
        "CreateContainerConfigError", "PodsRejected", "InvalidSpec", "NameTaken", "NameConflict", "WaitingForPods",
        "RollingOut", "Complete", "Ready", "Valid", "Routed", "OnClaim", "Completed", "WaitingForTurn", "HasTurn",
    }  # fmt: skip
    assert expected <= reasons()


def test_every_reason_has_a_heading_in_troubleshooting() -> None:
    headings = {word for anchor in anchors(DOCS / "reference/troubleshooting.md") for word in anchor.split("-")}
    assert {reason for reason in reasons() if reason.lower() not in headings} == set()


def test_every_metric_is_reported() -> None:
    shown = words("reference/controller.md") | words("reference/gateway.md")
    assert metrics()
    assert metrics() - shown == set()


def test_the_example_of_the_pages_api_has_the_version_of_this_source() -> None:
    assert f'"version": "{__version__}"' in (DOCS / "reference/page.md").read_text()


@pytest.mark.parametrize(
    ("page", "settings"),
    [("reference/controller.md", ControllerSettings), ("reference/gateway.md", GatewaySettings)],
    ids=["controller", "gateway"],
)
def test_every_setting_is_reported(page: str, settings: type[msgspec.Struct]) -> None:
    assert {field.encode_name for field in msgspec.structs.fields(settings)} - words(page) == set()


@pytest.mark.parametrize(
    ("page", "struct"),
    [
        ("reference/apis/krypton.md", ModelSpec),
        ("reference/apis/krypton.md", ModelStatus),
        ("reference/apis/kubeai.md", kubeai.ModelSpec),
        ("reference/apis/kubeai.md", kubeai.ModelStatus),
        ("reference/apis/kubeai.md", config.ResourceProfile),
        ("reference/apis/kubeai.md", config.SharedFilesystem),
        ("reference/apis/kubeai.md", config.ModelServerPods),
        ("reference/apis/kubeai.md", config.ModelAutoscaling),
        ("reference/apis/kubeai.md", config.SecretNames),
        ("reference/apis/llmkube.md", model_types.ModelSpec),
        ("reference/apis/llmkube.md", model_types.ModelStatus),
        ("reference/apis/llmkube.md", service_types.InferenceServiceSpec),
        ("reference/apis/llmkube.md", service_types.InferenceServiceStatus),
        ("reference/apis/llmkube.md", service_types.Resources),
        ("reference/apis/llmkube.md", runtime_types.VllmConfig),
        ("reference/apis/llmkube.md", runtime_types.TgiConfig),
        ("reference/apis/llmkube.md", runtime_types.PersonaPlexConfig),
        ("reference/apis/llmkube.md", runtime_types.RopeScaling),
        ("reference/apis/ome.md", ome_models.BaseModelSpec),
        ("reference/apis/ome.md", ome_models.FineTunedWeightSpec),
        ("reference/apis/ome.md", ome_models.StorageSpec),
        ("reference/apis/ome.md", ome_models.ModelStatusSpec),
        ("reference/apis/ome.md", ome_runtimes.ServingRuntimeSpec),
        ("reference/apis/ome.md", ome_runtimes.SupportedModelFormat),
        ("reference/apis/ome.md", ome_components.EngineSpec),
        ("reference/apis/ome.md", ome_components.RouterSpec),
        ("reference/apis/ome.md", ome_components.KedaConfig),
        ("reference/apis/ome.md", ome_services.InferenceServiceSpec),
        ("reference/apis/ome.md", ome_services.InferenceServiceStatus),
        ("reference/apis/ome.md", ome_services.PredictorModel),
        ("reference/apis/ome.md", ome_benchmarks.BenchmarkJobSpec),
        ("reference/apis/ome.md", ome_benchmarks.BenchmarkJobStatus),
        ("reference/routes.md", Route),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_every_field_is_reported(page: str, struct: type[msgspec.Struct]) -> None:
    shown = {word.split(".")[0] for word in words(page)}
    assert {field.encode_name for field in msgspec.structs.fields(struct)} - shown == set()


def test_every_key_of_kubeais_system_configuration_is_reported() -> None:
    shown = {word.split(".")[0] for word in words("reference/apis/kubeai.md")}
    assert {*config.SECTIONS, *config.UNUSED} - shown == set()


def test_every_engine_feature_and_profile_of_kubeai_is_reported() -> None:
    page = (DOCS / "reference/apis/kubeai.md").read_text()
    named = {*get_args(kubeai.Engine), *get_args(kubeai.Feature), *system_yaml.parse("").resource_profiles}
    assert {name for name in named if name not in page} == set()


def test_every_runtime_and_phase_of_llmkube_is_reported() -> None:
    named = {*get_args(service_types.Runtime), *get_args(service_types.Phase), *get_args(service_types.Priority)}
    assert named - words("reference/apis/llmkube.md") == set()


def test_every_error_of_the_gateway_is_reported() -> None:
    failures = [failure for failure in vars(errors).values() if isinstance(failure, errors.ErrorResponse)]
    codes = {failure.code for failure in (*failures, *errors.BY_STATUS) if failure.code}
    assert codes - words("reference/gateway.md") == set()


def test_every_path_of_the_gateway_is_reported() -> None:
    assert set(paths.NAMES) - words("reference/gateway.md") == set()


def test_the_list_of_roles_and_plugins_is_current() -> None:
    assert reference.PAGE.read_text() == reference.render(ROOT), "run: make generate"


def test_the_page_of_the_playbooks_names_all_and_no_others() -> None:
    page = (ROOT / "playbooks/README.md").read_text()
    shown = set(re.findall(r"^\| `slipway\.inference\.(\w+)", page, re.MULTILINE))
    assert shown == {path.stem for path in (ROOT / "playbooks").glob("*.yml") if not path.stem.startswith("_")}


def test_the_index_links_to_every_page() -> None:
    index = (DOCS / "README.md").read_text()
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"README.md"}
    assert {page for page in pages if f"({page})" not in index} == set()


def test_the_readme_is_short() -> None:
    assert count_words(ROOT / "README.md") <= 700


def test_the_quick_start_takes_ten_lines() -> None:
    playbook = (ROOT / "README.md").read_text().split("<!-- file: serve.yml -->\n```yaml\n")[1].split("```")[0]
    assert len(playbook.splitlines()) <= 10


def test_the_readme_names_the_versions_that_the_code_asks_for() -> None:
    readme = (ROOT / "README.md").read_text()
    runtime = documents.read(ROOT / "meta/runtime.yml")
    core = runtime["requires_ansible"].removeprefix(">=").rpartition(".")[0]
    preflight = documents.read(ROOT / "roles/preflight/defaults/main.yml")
    assert f"| ansible-core | {core} and newer |" in readme
    assert f"| Kubernetes | {preflight['preflight_minimum_kubernetes']} and newer |" in readme


def test_every_image_that_a_closed_network_may_have_to_mirror_is_reported() -> None:
    images = {engine.image(one) for engine in LLMKUBE_ENGINES.values() for one in ("", *ACCELERATORS)}
    assert images - words("reference/apis/llmkube.md") - {""} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_page_has_a_long_sentence_twice(page: Path) -> None:
    """As what is left of a merge may have."""
    lines = [
        line for line in re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL).splitlines() if line[:1] != "|"
    ]
    counts = Counter(part for line in lines for part in re.split(r"(?<=[.:]) ", line) if len(part) > 150)
    assert [sentence for sentence, count in counts.items() if count > 1] == []
