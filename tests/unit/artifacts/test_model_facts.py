"""A publication's facts about a model: exact, derived or declared, never estimated."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.artifacts.documents.model_facts import ModelMetadata, derive_facts, quantization
from slipway.artifacts.documents.publication import Facts
from slipway.artifacts.facts.capabilities import endpoints
from slipway.artifacts.headers.gguf import Gguf, whole

LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "max_position_embeddings": 4096}
CONTEXT = (
    *("max_position_embeddings", "model_max_length", "max_sequence_length", "max_seq_len", "seq_length"),
    *("n_positions", "n_ctx"),
)
BF16 = {"BF16": 1_000_000}
HEADER = Gguf(
    file_version=3, tensor_count=2, architecture="qwen3", quantization="Q4_K_M", context_length=40960, parameters=7
)


def of(**fields: Any) -> Facts:
    return derive_facts(ModelMetadata(**{"format": "Safetensors", "configuration": LLAMA, "tensors": BF16, **fields}))


def test_a_model_of_transformers_is_known_by_its_files() -> None:
    assert of() == Facts(
        format="Safetensors",
        family="llama",
        architecture="LlamaForCausalLM",
        parameters=1_000_000,
        context=4096,
        endpoint_types=("Chat", "TextGeneration"),
    )


@pytest.mark.parametrize(
    ("config", "family"),
    [
        ({"model_type": "Qwen3"}, "qwen3"),
        ({"architectures": ["GemmaForCausalLM"]}, "gemma"),
        ({"architectures": ["T5ForConditionalGeneration"]}, "t5"),
        ({"architectures": ["BertForSequenceClassification"]}, "bert"),
        ({"architectures": ["BertForTokenClassification"]}, "bert"),
        ({"architectures": ["BertForQuestionAnswering"]}, "bert"),
        ({"architectures": ["XLMModel"]}, "xlm"),
        ({}, ""),
    ],
)
def test_the_family_is_the_type_or_what_is_left_of_the_class(config: dict[str, Any], family: str) -> None:
    assert of(configuration=config).family == family


@pytest.mark.parametrize("name", CONTEXT)
def test_the_context_stands_under_several_names(name: str) -> None:
    assert of(configuration={"model_type": "x", name: 123}).context == 123


@pytest.mark.parametrize("value", [0, -1, "4096", True, 1 << 60, None, [4096]])
def test_a_context_that_makes_no_sense_is_not_known(value: object) -> None:
    result = of(configuration={**LLAMA, "max_position_embeddings": value})

    assert (result.context, result.partial) == (0, True)


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        ({"quant_method": "gptq", "bits": 4}, "gptq-4bit"),
        ({"quant_method": "AWQ", "w_bit": 4}, "awq-4bit"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "bnb-nf4"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes-8bit"),
        ({"load_in_4bit": True}, "bitsandbytes-4bit"),
        ({"bits": 8}, "8bit"),
        ({"quant_method": 7, "bits": "4"}, ""),
        ([], ""),
        (None, ""),
    ],
)
def test_quantizations_have_upstreams_names(settings: object, label: str) -> None:
    assert quantization({"quantization_config": settings}) == label


def test_weights_that_are_packed_are_not_counted() -> None:
    packed = {**LLAMA, "quantization_config": {"quant_method": "gptq", "bits": 4}}
    result = of(configuration=packed, tensors={"I32": 1000, "F16": 10})

    assert (result.parameters, result.partial) == (0, True)


def test_parameters_that_the_model_declares_count_before_the_files() -> None:
    assert of(configuration={**LLAMA, "num_parameters": 5}).parameters == 5


def test_parameters_are_not_estimated() -> None:
    dimensions = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}
    result = of(configuration={**LLAMA, **dimensions}, tensors={})

    assert (result.parameters, result.partial) == (0, True)


@pytest.mark.parametrize(
    "template",
    ["{% if tools %}", "{%- if tools %}", "{% for tool in tools %}", "<tools>", "a tool_call b", "{{ if .Tools }}"],
)
def test_a_template_shows_that_a_model_calls_tools(template: str) -> None:
    result = of(template=template)

    assert "ToolCalling" in result.supported_features
    assert result.features == ("tools",)


def test_a_model_that_does_not_chat_calls_no_tools() -> None:
    assert of(template="<tools>", tasks=("rerank",)).supported_features == ()


def test_a_gguf_file_is_known_by_its_header() -> None:
    assert of(format="GGUF", headers=((HEADER,),)) == Facts(
        format="GGUF",
        family="qwen3",
        architecture="qwen3",
        parameters=7,
        quantization="Q4_K_M",
        context=40960,
        endpoint_types=("Chat", "TextGeneration"),
    )


def test_parts_of_one_gguf_model_add_up() -> None:
    assert of(format="GGUF", headers=((HEADER, HEADER),)).parameters == 14
    assert whole("a/m-00001-of-00002.gguf") == whole("a/m-00002-of-00002.gguf") != whole("a/n-00001-of-00002.gguf")


def test_of_several_gguf_models_only_common_facts_are_reported() -> None:
    other = Gguf(
        file_version=3, tensor_count=2, architecture="qwen3", quantization="Q8_0", context_length=40960, parameters=7
    )
    result = of(format="GGUF", headers=((HEADER,), (other,)))

    assert (result.architecture, result.parameters, result.quantization) == ("qwen3", 7, "")


def test_a_gguf_file_that_says_nothing_is_partial() -> None:
    assert of(format="GGUF", headers=()) == Facts(format="GGUF", partial=True)


def test_a_pipeline_is_known_by_its_index() -> None:
    result = of(format="Diffusers", configuration={"_class_name": "StableDiffusionXLPipeline"}, tensors={"F16": 9})

    assert result == Facts(
        format="Diffusers",
        family="stablediffusionxl",
        architecture="StableDiffusionXLPipeline",
        parameters=9,
        endpoint_types=("ImageGeneration",),
        supported_features=("ImageOutput",),
    )


@pytest.mark.parametrize("value", ["\x1b[31m", "a\nb", "x" * 5000, 7, [], {"a": 1}])
def test_foreign_text_can_be_shown(value: Any) -> None:
    result = of(configuration={"model_type": value, "architectures": [value]}, tasks=("t" * 900,), template=str(value))

    for text in (result.family, result.architecture, *result.tasks):
        assert text.isprintable()
        assert len(text) <= 128


CHAT = ("Chat", "TextGeneration")
TASKS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "text-generation": (CHAT, ()),
    "text2text-generation": (CHAT, ()),
    "summarization": (CHAT, ()),
    "conversational": (CHAT, ()),
    "feature-extraction": (("Embeddings",), ()),
    "embeddings": (("Embeddings",), ()),
    "text-embeddings-inference": (("Embeddings",), ()),
    "sentence-similarity": (("Embeddings",), ()),
    "rerank": (("Rerank",), ()),
    "reranker": (("Rerank",), ()),
    "text-ranking": (("Rerank",), ()),
    "automatic-speech-recognition": (("SpeechToText",), ("AudioInput",)),
    "speech-to-text": (("SpeechToText",), ("AudioInput",)),
    "text-to-speech": (("TextToSpeech",), ("AudioOutput",)),
    "text-to-audio": (("AudioGeneration",), ("AudioOutput",)),
    "text-to-music": (("AudioGeneration",), ("AudioOutput",)),
    "audio-generation": (("AudioGeneration",), ("AudioOutput",)),
    "translation": (("Translation",), ()),
    "image-classification": (("ImageClassification",), ("VisionInput",)),
    "object-detection": (("ObjectDetection",), ("VisionInput",)),
    "image-segmentation": (("ImageSegmentation",), ("VisionInput",)),
    "image-to-text": (("Chat", "ImageToText"), ("VisionInput", "MultiModalInput")),
    "image-text-to-text": (("Chat", "ImageToText"), ("VisionInput", "MultiModalInput")),
    "visual-question-answering": (("VisualQuestionAnswering",), ("VisionInput", "MultiModalInput")),
    "document-question-answering": (("VisualQuestionAnswering",), ("VisionInput", "MultiModalInput")),
    "text-to-image": (("ImageGeneration",), ("ImageOutput",)),
    "image-to-image": (("ImageGeneration",), ("VisionInput", "ImageOutput")),
    "inpainting": (("ImageGeneration",), ("VisionInput", "ImageOutput")),
    "text-to-video": (("VideoGeneration",), ("VideoOutput",)),
    "image-to-video": (("VideoGeneration",), ("VisionInput", "VideoOutput")),
    "video-to-video": (("VideoGeneration",), ("VideoInput", "VideoOutput")),
    "Text Generation": (CHAT, ()),
    "unheard-of": ((), ()),
}


@pytest.mark.parametrize("task", TASKS)
def test_a_task_says_which_endpoints_serve_it(task: str) -> None:
    assert endpoints([task]) == TASKS[task]


def test_several_tasks_add_up_without_repeating() -> None:
    assert endpoints(["image-to-text", "text-generation"]) == (
        ("Chat", "ImageToText", "TextGeneration"),
        ("VisionInput", "MultiModalInput"),
    )


@pytest.mark.parametrize("spelling", ["any-to-any", "Any to Any", "any_to_any"])
@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        ({"architectures": ["GemmaForConditionalGeneration"], "model_type": "gemma"}, CHAT),
        (LLAMA, CHAT),
        ({"architectures": ["XForConditionalGeneration"], "vision_config": {"depth": 1}}, ("Chat", "ImageToText")),
        ({"architectures": ["WhisperForConditionalGeneration"]}, ("SpeechToText",)),
    ],
)
def test_a_task_that_says_nothing_leaves_the_word_to_the_files(
    spelling: str, configuration: dict[str, Any], expected: tuple[str, ...]
) -> None:
    result = of(configuration=configuration, tasks=(spelling,))

    assert (result.endpoint_types, result.tasks) == (expected, (spelling,))


def test_a_declared_task_counts_beside_one_that_says_nothing() -> None:
    assert of(tasks=("any-to-any", "translation")).endpoint_types == ("Translation",)


def test_a_task_without_an_entry_hides_what_the_files_say() -> None:
    assert of(tasks=("unheard-of",)).endpoint_types == ()
