"""Selection: which runtime serves a model, and what is said of those that do not."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slipway.apis.ome import names
from slipway.apis.ome.runtimes.candidates import Candidate, InvalidRuntime, candidate, parse_size
from slipway.apis.ome.runtimes.selection import (
    MOST_EXCLUDED,
    Selection,
    excluded_status,
    facts,
    required_classes,
    runtime_status,
    select,
)
from slipway.apis.ome.types.model import BaseModelSpec
from slipway.artifacts.facts.config import ModelFacts, VersionedName
from slipway.kube.objects import Object
from slipway.serving.contract.api import Reference
from tests import documents
from tests.tables import each, seeds

CASES = Path(__file__).parents[5] / "shared/reference/samples/ome"
SERVICE = ("default", "chat")


def rows(name: str) -> list[Any]:
    """Of one of the original's tables, where they are at hand."""
    path = CASES / name
    return json.loads(path.read_text()) if path.exists() else []


def model(**fields: Any) -> ModelFacts:
    """A model of Llama 3.1 8B, as its files describe it."""
    spec: Object = {
        "storage": {"storageUri": "hf://meta-llama/Llama-3.1-8B"},
        "modelFormat": {"name": "safetensors", "version": "1.0.0"},
        "modelFramework": {"name": "transformers", "version": "4.42.3"},
        "modelArchitecture": "LlamaForCausalLM",
        "modelParameterSize": "8.03B",
    }
    model_spec = {name: value for name, value in (spec | fields).items() if value is not None}
    return facts(msgspec.convert(model_spec, BaseModelSpec))


def entry(**fields: Any) -> Object:
    """That fits the model above."""
    fitting: Object = {
        "modelFormat": {"name": "safetensors", "version": "1.0.0"},
        "modelFramework": {"name": "transformers", "version": "4.42.3"},
        "modelArchitecture": "LlamaForCausalLM",
        "autoSelect": True,
    }
    return {name: value for name, value in (fitting | fields).items() if value is not None}


def runtime(name: str, *entries: Object, namespace: str = "", **spec: Any) -> Candidate | InvalidRuntime:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return candidate({"metadata": metadata, "spec": {"supportedModelFormats": list(entries or [entry()]), **spec}})


def sized(name: str, smallest: str | None, largest: str | None, **spec: Any) -> Candidate | InvalidRuntime:
    bounds = {"min": smallest, "max": largest}
    return runtime(name, modelSizeRange={key: value for key, value in bounds.items() if value}, **spec)


def named(name: str) -> Reference:
    return Reference(names.CLUSTER_SERVING_RUNTIME, "", name)


def order(selection: Selection) -> list[str]:
    return [one.reference.name for one in selection.ranked]


def taken(selection: Selection) -> Reference:
    assert selection.chosen
    return selection.chosen.reference


def better(selection: Selection) -> Reference:
    assert selection.better
    return selection.better.reference


def reasons(only: Candidate | InvalidRuntime, of: ModelFacts | None = None, **requested: Any) -> tuple[str, ...]:
    """Why the only runtime there is does not fit."""
    selection = select(of or model(), [only], **requested)
    assert selection.chosen is None
    [excluded] = selection.excluded
    return excluded.reasons


def message(selection: Selection) -> str:
    assert selection.fault is not None
    return f"{selection.fault.reason}: {selection.fault.message}"


# --- what fits


@pytest.mark.parametrize(
    ("fields", "because"),
    [
        ({"modelFormat": {"name": "gguf"}}, "it is for the format gguf, the model's is safetensors"),
        (
            {"modelFormat": {"name": "safetensors", "version": "2.0.0"}},
            "it is for 2.0.0 of safetensors, the model's is 1.0.0",
        ),
        ({"modelFormat": {"name": "safetensors"}}, "it is for no version of safetensors, the model's is 1.0.0"),
        ({"modelFramework": {"name": "vllm"}}, "it is for the framework vllm, the model's is transformers"),
        ({"modelFramework": None}, "it is for models without framework, the model's is transformers"),
        (
            {"modelFramework": {"name": "transformers", "version": "4.41.0", "operator": "GreaterThanOrEqual"}},
            "it is for up to 4.41.0 of transformers, the model's is 4.42.3",
        ),
        (
            {"modelArchitecture": "Qwen2ForCausalLM"},
            "it is for the architecture Qwen2ForCausalLM, the model's is LlamaForCausalLM",
        ),
        (
            {"modelArchitecture": "llamaforcausallm"},
            "it is for the architecture llamaforcausallm, the model's is LlamaForCausalLM",
        ),
        ({"modelArchitecture": None}, "it is for models without architecture, the model's is LlamaForCausalLM"),
        ({"quantization": "fp8"}, "it is for the quantization fp8, the model has none"),
        ({"diffusionPipeline": {"className": "FluxPipeline"}}, "it is for another diffusion pipeline"),
        ({"autoSelect": False}, "it matches, but is not for automatic selection: set it in spec.runtime"),
        ({"autoSelect": None}, "it matches, but is not for automatic selection: set it in spec.runtime"),
    ],
)
def test_an_entry_fits_where_all_it_says_is_the_models(fields: dict[str, Any], because: str) -> None:
    assert select(model(), [runtime("a", entry(**fields)), runtime("b")]).ranked[0].reference.name == "b"
    assert reasons(runtime("a", entry(**fields))) == (because,)


@pytest.mark.parametrize("word", ["awq", "gptq", "mxfp4"])
def test_a_quantization_that_ome_has_no_word_for_does_not_decide(word: str) -> None:
    """Earlier versions filled it in. The runtimes of OME for such models name none."""
    assert order(select(model(quantization=word), [runtime("a")])) == ["a"]
    assert order(select(model(quantization=word), [runtime("a", entry(quantization=word))])) == ["a"]
    assert select(model(quantization=word), [runtime("a", entry(quantization="fp8"))]).chosen is None
    assert select(model(), [runtime("a", entry(quantization=word))]).chosen is None


@pytest.mark.parametrize("fields", [{"quantization": "fp8"}, {"modelArchitecture": None}, {"modelFramework": None}])
def test_a_field_that_only_one_side_sets_excludes_an_entry(fields: dict[str, Any]) -> None:
    assert select(model(**fields), [runtime("a")]).chosen is None


@pytest.mark.parametrize("operator", ["GreaterThan", "GreaterThanOrEqual"])
def test_an_operator_takes_models_of_earlier_versions(operator: str) -> None:
    later = {"name": "transformers", "version": "4.50.0", "operator": operator}
    assert order(select(model(), [runtime("a", entry(modelFramework=later))])) == ["a"]


PIPELINE = {
    "className": "QwenImagePipeline",
    "vae": {"library": "diffusers", "type": "AutoencoderKL"},
    "additionalComponents": {"safety": {"library": "diffusers", "type": "Checker"}},
}


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        ({}, True),
        ({"className": "QwenImagePipeline"}, True),
        ({"className": "FluxPipeline"}, False),
        ({"vae": {"library": "diffusers"}}, True),
        ({"vae": {"type": "AutoencoderTiny"}}, False),
        ({"scheduler": {"library": "", "type": ""}}, False),
        ({"additionalComponents": {"safety": {}}}, True),
        ({"additionalComponents": {"upscaler": {}}}, False),
    ],
)
def test_a_pipeline_has_all_that_an_entry_asks_of_one(requested: Object, expected: bool) -> None:
    diffusion = model(diffusionPipeline=PIPELINE)
    fitting = select(diffusion, [runtime("a", entry(diffusionPipeline=requested))]).chosen is not None
    assert fitting is expected
    assert select(model(), [runtime("a", entry(diffusionPipeline=requested))]).chosen is None


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("7B", 7 * 10**9),
        ("1.5b", 1_500_000_000),
        ("20K", 20_000),
        ("1.5T", 1_500_000_000_000),
        ("8.03B", 8_030_000_000),
    ],
)
def test_a_size_has_any_of_four_units_in_either_case(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "seven", "7 B", "7G", "-7B", "7e9", "1_000", "nan", "\u0667B", "9" * 40])
def test_a_size_that_cannot_be_read_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size such as 7B or 350M"):
        parse_size(text)


@pytest.mark.parametrize(
    ("smallest", "largest", "size", "expected"),
    [
        ("8.03B", "70B", "8.03B", True),
        ("1B", "8.03B", "8.03B", True),
        ("8.04B", "70B", "8.03B", False),
        ("1B", "8.02B", "8.03B", False),
        ("1b", "9b", "8030M", True),
        ("8B", None, "8.03B", True),
        ("9B", None, "8.03B", False),
        (None, "9B", "8.03B", True),
        (None, "8B", "8.03B", False),
        (None, None, "8.03B", True),
        ("1B", "2B", None, True),
    ],
)
def test_bounds_of_sizes_are_included_and_either_may_be_left_out(
    smallest: str | None, largest: str | None, size: str | None, expected: bool
) -> None:
    selection = select(model(modelParameterSize=size), [sized("a", smallest, largest)])
    assert (selection.chosen is not None) is expected


def test_a_model_whose_size_cannot_be_read_fits_no_range_and_is_reported_so() -> None:
    odd = model(modelParameterSize="large")
    assert order(select(odd, [sized("a", "1B", "9B"), runtime("b")])) == ["b"]
    assert reasons(sized("a", "1B", "9B"), odd) == (
        "it is for models of 1B to 9B, but the model's 'large' is not a size such as 7B or 350M",
    )


def test_accelerator_classes_count_by_name() -> None:
    classes = {"acceleratorClasses": ["h100", "a100"]}
    some = runtime("a", acceleratorRequirements=classes)
    assert select(model(), [some], required_classes=frozenset({"h100", "a100"})).chosen
    assert reasons(some, required_classes=frozenset({"h100", "t4"})) == ("it does not list the accelerator class t4",)


def test_a_service_asks_for_classes_in_four_places() -> None:
    spec = {"acceleratorSelector": {"acceleratorClass": "b"}, "engine": {"acceleratorOverride": {}}, "decoder": None}
    assert required_classes({"metadata": {"annotations": {"ome.io/accelerator-class": "a"}}, "spec": spec}) == {
        "a",
        "b",
    }
    spec = {part: {"acceleratorOverride": {"acceleratorClass": part}} for part in ("engine", "decoder")}
    assert required_classes({"metadata": {}, "spec": spec}) == {"engine", "decoder"}


# --- which one


def test_a_runtime_of_the_namespace_goes_before_a_better_one_of_the_cluster() -> None:
    strong = runtime("cluster", entry(priority=9))
    assert order(select(model(), [strong, runtime("own", namespace="default")])) == ["own", "cluster"]


def test_the_higher_score_wins_and_then_the_name() -> None:
    heavy = {"name": "safetensors", "version": "1.0.0", "weight": 3}
    selection = select(
        model(), [runtime("c"), runtime("a", entry(priority=3)), runtime("b", entry(modelFormat=heavy)), runtime("d")]
    )
    assert [(one.reference.name, one.score) for one in selection.ranked] == [("a", 6), ("b", 4), ("c", 2), ("d", 2)]


def test_a_weight_of_nothing_is_the_originals_default() -> None:
    weightless = [
        {"name": "safetensors", "version": "1.0.0", "weight": 0},
        {"name": "transformers", "version": "4.42.3", "weight": 0},
    ]
    [only] = select(model(), [runtime("a", entry(modelFormat=weightless[0], modelFramework=weightless[1]))]).ranked
    assert only.score == 15


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (runtime("best", entry(priority=10)), sized("ranged", "1B", "80B")),
        (sized("best", "1B", "80B", supportedModelFormats=[entry(priority=2)]), sized("ranged", "7B", "9B")),
        (sized("best", "1B", "80B", supportedModelFormats=[entry(priority=2)]), runtime("any")),
        (sized("narrow", "7B", "9B"), sized("wide", "1B", "80B")),
        (sized("z", "7B", "9B"), sized("a", "7B", "90B")),
        (sized("z", None, "9B"), sized("a", "7B", "9B")),
        (runtime("any"), sized("narrow", "7B", "9B")),
        (sized("a", "7B", "9B"), sized("b", "7B", "9B")),
    ],
)
@pytest.mark.parametrize("namespace", ["", "models"])
def test_the_score_counts_first_then_the_distance_from_the_range_then_the_name(
    namespace: str, first: Candidate, second: Candidate
) -> None:
    kind = names.SERVING_RUNTIME if namespace else names.CLUSTER_SERVING_RUNTIME
    for some in ([first, second], [second, first]):
        moved = [msgspec.structs.replace(one, reference=Reference(kind, namespace, one.reference.name)) for one in some]
        assert order(select(model(), moved)) == [first.reference.name, second.reference.name]


def test_a_size_range_does_not_count_where_the_model_has_no_size() -> None:
    unsized = model(modelParameterSize=None)
    assert order(select(unsized, [sized("b", "7B", "9B"), runtime("a")])) == ["a", "b"]


def test_an_entry_that_does_not_fit_adds_nothing_to_the_score() -> None:
    other = entry(quantization="fp8", priority=9)
    [first, second] = select(model(), [runtime("a", entry(), other), runtime("b", entry(priority=2))]).ranked
    assert (first.reference.name, first.score) == ("b", 4)
    assert (second.reference.name, second.score) == ("a", 2)


def test_the_fitting_entry_with_the_highest_score_counts() -> None:
    [only] = select(model(), [runtime("a", entry(), entry(priority=5), entry(priority=7, autoSelect=False))]).ranked
    assert only.score == 10


def test_an_entry_that_says_nothing_of_selection_counts_beside_one_that_is_for_it() -> None:
    assert order(select(model(), [runtime("a", entry(autoSelect=None), entry(quantization="fp8"))])) == ["a"]


def test_an_entry_that_is_kept_out_is_not_selected_for_another_ones_sake() -> None:
    kept_out = runtime("a", entry(autoSelect=False), entry(quantization="fp8"))
    assert reasons(kept_out) == ("it matches, but is not for automatic selection: set it in spec.runtime",)


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_the_candidates_does_not_matter(seed: int) -> None:
    candidates = [sized(f"r{number}", f"{number % 3}B", f"{9 + number % 4}B") for number in range(20)]
    shuffled = random.Random(seed).sample(candidates, k=20)
    assert order(select(model(), shuffled)) == order(select(model(), candidates))


# --- the one that serves already


def test_a_service_keeps_its_runtime_while_that_fits_and_a_better_one_is_reported() -> None:
    selection = select(model(), [runtime("old"), runtime("new", entry(priority=2))], current=named("old"))
    assert runtime_status(selection) == {
        "name": "old",
        "kind": "ClusterServingRuntime",
        "score": 2,
        "chosen": "Selection",
        "next": [{"name": "new", "kind": "ClusterServingRuntime", "score": 4}],
        "better": {"name": "new", "kind": "ClusterServingRuntime", "score": 4},
    }


@pytest.mark.parametrize(
    "changed",
    [
        runtime("old", disabled=True),
        runtime("old", entry(quantization="fp8")),
        sized("old", "70B", "80B"),
        runtime("old", supportedModelFormats="all"),
    ],
)
def test_a_runtime_that_does_not_fit_any_more_is_left(changed: Candidate | InvalidRuntime) -> None:
    assert order(select(model(), [changed, runtime("new")], current=named("old"))) == ["new"]
    assert "better" not in (runtime_status(select(model(), [changed, runtime("new")], current=named("old"))) or {})


def test_a_runtime_that_is_no_longer_offered_goes_on_where_it_serves() -> None:
    withdrawn = runtime("old", entry(autoSelect=False))
    selection = select(model(), [withdrawn, runtime("new")], current=named("old"))
    assert taken(selection).name == "old"
    assert better(selection).name == "new"


def test_a_runtime_of_the_same_name_in_the_namespace_is_another_one() -> None:
    selection = select(model(), [runtime("same", namespace="default"), runtime("same")], current=named("same"))
    assert taken(selection) == named("same")
    assert better(selection).namespace == "default"


def test_a_runtime_that_only_its_name_puts_first_is_not_better() -> None:
    selection = select(model(), [runtime("a"), runtime("old")], current=named("old"))
    assert taken(selection).name == "old"
    assert selection.better is None


def test_a_runtime_with_a_closer_range_is_better() -> None:
    selection = select(model(), [sized("z", "7B", "9B"), sized("old", "1B", "9B")], current=named("old"))
    assert better(selection).name == "z"


def test_a_model_that_is_recreated_does_not_stop_what_serves() -> None:
    selection = select(ModelFacts(), [runtime("old"), runtime("new", entry(priority=2))], current=named("old"))
    assert taken(selection).name == "old"


# --- the one that the service names


def test_the_runtime_that_a_service_names_serves_though_it_does_not_fit() -> None:
    selection = select(
        model(), [runtime("a", entry(quantization="fp8", autoSelect=False)), runtime("b")], requested=named("a")
    )
    assert taken(selection).name == "a"
    assert not selection.fits
    assert selection.chosen
    assert selection.chosen.unfit == ("it is for the quantization fp8, the model has none",)
    assert runtime_status(selection) == {
        "name": "a",
        "kind": "ClusterServingRuntime",
        "score": 0,
        "chosen": "Service",
        "next": [],
    }


def test_a_named_runtime_need_not_be_for_automatic_selection() -> None:
    selection = select(model(), [runtime("a", entry(autoSelect=False))], requested=named("a"))
    assert selection.fits
    assert (runtime_status(selection) or {})["score"] == 2


def test_a_named_runtime_is_not_judged_before_the_model_is_known() -> None:
    selection = select(ModelFacts(), [runtime("a")], requested=named("a"))
    assert selection.fits
    assert selection.chosen


def test_a_name_selects_the_runtime_of_the_namespace_before_one_of_the_cluster() -> None:
    selection = select(model(), [runtime("same"), runtime("same", namespace="default")], requested=named("same"))
    assert taken(selection).namespace == "default"


@pytest.mark.parametrize(
    ("candidates", "fault"),
    [
        (
            [runtime("b")],
            (
                "RuntimeNotFound: spec.runtime names a, but there is no ServingRuntime in its namespace"
                " and no ClusterServingRuntime of this name"
            ),
        ),
        (
            [runtime("aa"), runtime("zz")],
            (
                "RuntimeNotFound: spec.runtime names a, but there is no ServingRuntime in its namespace"
                " and no ClusterServingRuntime of this name"
            ),
        ),
        (
            [runtime("a", disabled=True)],
            "RuntimeDisabled: the ClusterServingRuntime a is disabled: enable it, or set another one in spec.runtime",
        ),
        (
            [sized("a", "x", None)],
            (
                "RuntimeInvalid: the ClusterServingRuntime a cannot be read: modelSizeRange.min 'x' is not"
                " a size such as 7B or 350M"
            ),
        ),
    ],
)
def test_a_named_runtime_that_cannot_serve_is_refused(candidates: list[Candidate | InvalidRuntime], fault: str) -> None:
    selection = select(model(), candidates, requested=named("a"))
    assert selection.chosen is None
    assert message(selection) == fault


def test_a_misspelled_runtime_is_asked_about() -> None:
    selection = select(model(), [runtime("llama-cpu"), runtime("zz")], requested=named("lama-cpu"))
    assert message(selection).endswith("of this name; did you mean llama-cpu?")


# --- none


def test_if_none_fits_the_closest_three_are_named_with_everything_missing() -> None:
    selection = select(
        model(),
        [
            runtime("far", entry(modelFormat={"name": "onnx"})),
            sized("near", "70B", "80B"),
            sized("middle", "7B", "8B", supportedModelFormats=[entry(quantization="fp8")]),
            runtime("offered-to-none", entry(autoSelect=False)),
        ],
    )
    assert message(selection) == (
        "NoRuntime: no runtime serves safetensors 1.0.0, transformers 4.42.3, LlamaForCausalLM, 8.03B. Closest: "
        "offered-to-none: it matches, but is not for automatic selection: set it in spec.runtime; "
        "near: it is for models of 70B to 80B, the model has 8.03B; "
        "middle: it is for the quantization fp8, the model has none, it is for models of 7B to 8B, the model has 8.03B"
        "; status.excluded has the others, 4 in all"
    )
    assert excluded_status(selection)[2:] == [
        {
            "name": "middle",
            "kind": "ClusterServingRuntime",
            "reason": "it is for the quantization fp8, the model has none",
        },
        {
            "name": "far",
            "kind": "ClusterServingRuntime",
            "reason": "it is for the format onnx, the model's is safetensors",
        },
    ]
    assert runtime_status(selection) is None


def test_the_table_has_fifty_rows_and_the_number_of_all() -> None:
    many = [runtime(f"r{number:03}", entry(quantization="fp8")) for number in range(70)]
    selection = select(model(), [*many, sized("near", "9B", None)])
    assert len(excluded_status(selection)) == MOST_EXCLUDED
    assert selection.excluded_count == 71
    assert [row["name"] for row in excluded_status(selection)[:3]] == ["near", "r000", "r001"]


def test_a_missing_runtime_is_reported_with_the_fix() -> None:
    assert message(select(model(), [])).startswith("NoRuntime: there is no runtime: apply a ServingRuntime")


def test_a_model_that_is_not_known_yet_is_waited_for() -> None:
    selection = select(ModelFacts(), [runtime("a")])
    assert message(selection).startswith("BaseModelNotReady: the model's format is unknown until it is downloaded")
    assert selection.excluded == ()


@pytest.mark.parametrize(
    "spec",
    [
        {"supportedModelFormats": "all"},
        {"supportedModelFormats": [1]},
        {"modelSizeRange": {"min": "a lot"}},
        {"modelSizeRange": []},
        {"disabled": "yes"},
        {"acceleratorRequirements": {"acceleratorClasses": 3}},
    ],
)
def test_a_broken_runtime_spoils_nothing_and_is_reported_last(spec: Object) -> None:
    broken = candidate({"metadata": {"name": "broken"}, "spec": spec})
    assert isinstance(broken, InvalidRuntime)
    assert order(select(model(), [broken, runtime("a")])) == ["a"]
    selection = select(model(), [broken, runtime("b", entry(modelFormat={"name": "onnx"}))])
    assert [one.reference.name for one in selection.excluded] == ["b", "broken"]
    assert selection.excluded[1].reasons[0].startswith("it cannot be read: ")


@pytest.mark.parametrize("spec", [None, {}, {"supportedModelFormats": None}, {"supportedModelFormats": [{}]}])
def test_a_runtime_without_formats_serves_nothing(spec: Object | None) -> None:
    assert reasons(candidate({"metadata": {"name": "a"}, "spec": spec})) == ("it lists no model format",)


def test_a_runtime_is_read_once_until_it_changes() -> None:
    stored: Object = {"metadata": {"name": "a"}, "spec": {"disabled": False}}
    assert candidate(stored) is candidate(stored)
    changed = {**stored, "spec": {"disabled": True}}
    assert candidate(changed) != candidate(stored)


ODD: list[Any] = [None, True, -1, 1 << 70, 0.5, "", "x" * 5000, "7B", [], {}, [{}], {"name": 1}, {"min": "7B"}, "1.0.0"]


@each(seeds(40))
def test_odd_runtimes_and_models_lead_to_a_choice_or_a_bounded_fault(seed: int) -> None:
    dice = random.Random(seed)

    def spoiled(fields: Object) -> Object:
        spoilt = {name: dice.choice(ODD) for name in dice.sample([*fields, "quantization", "diffusionPipeline"], k=2)}
        return {**fields, **spoilt, "modelFormat": {"name": "safetensors", "version": dice.choice(ODD)}}

    texts = [one for one in ODD if isinstance(one, str)]
    odd = ModelFacts(
        format=VersionedName("safetensors", dice.choice(texts)),
        architecture=dice.choice(texts),
        parameter_size=dice.choice(texts),
        quantization=dice.choice(texts),
        diffusion_pipeline=dice.choice([None, {}, {"className": 1}, {"vae": "x"}]),
    )
    some = [runtime(f"r{number}", spoiled(entry()), modelSizeRange=dice.choice(ODD)) for number in range(10)]
    for reference in (None, named("r3"), named("missing")):
        selection = select(odd, some, requested=reference, current=named("r5"))
        assert (selection.chosen is None) is (selection.fault is not None)
        assert len(json.dumps([runtime_status(selection), excluded_status(selection)])) < 10_000
        assert selection.fault is None or len(selection.fault.message) < 5_000


# --- the original's tables


SELECTED = "selector-cases/TestGetSupportingRuntimes"
OF_THE_CLUSTER = sized(
    "cluster-pytorch-rt",
    None,
    "100B",
    supportedModelFormats=[{"modelFormat": {"name": "pytorch", "weight": 7}, "autoSelect": True}],
)
"""Additional cases to the table's, with scores and the reasons of exclusions."""


def described(row: Object) -> ModelFacts:
    return facts(msgspec.convert({"storage": {"storageUri": "hf://a/b"}, **row}, BaseModelSpec))


def candidates(name: str) -> list[Candidate | InvalidRuntime]:
    return [candidate({"metadata": one["ObjectMeta"], "spec": one["Spec"]}) for one in rows(name)]


@pytest.mark.parametrize("row", rows(f"{SELECTED}.json"), ids=lambda row: row["name"])
def test_runtimes_are_selected_as_by_the_original(row: Object) -> None:
    selection = select(described(row["model"]), [*candidates(f"{SELECTED}__runtimes.json"), OF_THE_CLUSTER])
    if row["expectError"]:
        assert message(selection).startswith("NoRuntime: ")
    assert order(selection) == row["expectedRuntimeNames"]
    assert [one.score for one in selection.ranked] == (row["expectedScores"] or [])


@pytest.mark.parametrize("row", rows("selector-cases/TestSupportedRuntimeWithAC.json"), ids=lambda row: row["name"])
def test_accelerator_classes_exclude_as_by_the_original(row: Object) -> None:
    selection = select(
        described(row["model"]),
        candidates("selector-cases/TestSupportedRuntimeWithAC__runtimes.json"),
        required_classes=required_classes(row["inferenceService"]),
    )
    assert order(selection) == row["expectedRuntimeNames"]


@pytest.mark.parametrize("row", rows("selector-cases/TestParseModelSize.json"), ids=lambda row: row["name"])
def test_sizes_are_read_as_by_the_original(row: Object) -> None:
    assert parse_size(row["sizeStr"]) == row["expected"]


@pytest.mark.parametrize("row", rows("selector-cases/TestSortSupportedRuntime.json"), ids=lambda row: row["name"])
def test_runtimes_are_ordered_as_by_the_original(row: Object) -> None:
    """But for those whose range does not contain the size: the original's function sorts them, too, though its
    selection never has any."""
    some = [
        candidate(
            {
                "metadata": {"name": one["Name"]} | ({} if one["IsCluster"] else {"namespace": "default"}),
                "spec": (one["Spec"] or {})
                | {
                    "supportedModelFormats": [
                        {"modelFormat": {"name": "x", "weight": one["Score"]}, "autoSelect": True}
                    ]
                },
            }
        )
        for one in row["runtimes"]
    ]
    selection = select(described({"modelFormat": {"name": "x"}, "modelParameterSize": "7B"}), some)
    assert order(selection) == [name for name in row["expectedOrder"] if name != "far-size-runtime"]


@pytest.mark.parametrize("row", rows("selector-cases/TestGetModelFormatLabel.json"), ids=lambda row: row["name"])
def test_a_message_names_all_that_the_originals_label_of_a_model_has(row: Object) -> None:
    """In words, where the original writes ``mt:pytorch:1.0.0``."""
    text = message(select(described(row["model"]), [runtime("a", entry(modelFormat={"name": "none"}))]))
    assert [part for part in row["expected"].split(":")[1:] if part not in text] == []


@pytest.mark.parametrize(
    "row",
    [
        row
        for name in ("Comprehensive", "EdgeCases")
        for row in rows(f"other-cases/TestResolveModelAndRuntime_{name}.json")
    ],
    ids=lambda row: row["name"],
)
def test_a_model_gets_a_runtime_where_the_original_finds_one(row: Object) -> None:
    models = [one["spec"] for one in row["objects"] if "modelFormat" in one["spec"]]
    if not models or models[0].get("disabled"):
        pytest.skip("is refused before a runtime is looked for")
    runtimes = [candidate(one) for one in row["objects"] if "supportedModelFormats" in one["spec"]]
    assert (select(described(models[0]), runtimes).chosen is None) is row["wantErr"]


@pytest.mark.parametrize("path", sorted(CASES.glob("runtimes/*.yaml")), ids=lambda path: path.stem)
def test_runtimes_that_come_with_the_original_can_be_read(path: Path) -> None:
    for one in documents.load_all(path.read_text()):
        read = candidate(one)
        assert isinstance(read, Candidate)
        assert read.entries
        if "modelSizeRange" in one["spec"]:
            assert (read.smallest or 0) < (read.largest or 0)


@pytest.mark.parametrize("path", sorted(CASES.glob("runtimes/*.yaml")), ids=lambda path: path.stem)
def test_a_model_that_is_just_what_a_runtime_lists_fits_it(path: Path) -> None:
    for one in documents.load_all(path.read_text()):
        listed, bounds = one["spec"]["supportedModelFormats"][0], one["spec"].get("modelSizeRange", {})
        fields = {
            name: listed[name] for name in listed if name in ("modelFormat", "modelFramework", "modelArchitecture")
        }
        described = model(**fields, quantization=listed.get("quantization"), modelParameterSize=bounds.get("max"))
        assert select(described, [candidate(one)], requested=named(one["metadata"]["name"])).fits
        assert (select(described, [candidate(one)]).chosen is not None) is listed["autoSelect"]
