"""Capabilities: the tasks that a model supports, according to its configuration. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

TEXT_TO_TEXT, EMBEDDING = "TEXT_TO_TEXT", "EMBEDDING"
IMAGE_TEXT_TO_TEXT, AUDIO_TO_TEXT = "IMAGE_TEXT_TO_TEXT", "AUDIO_TO_TEXT"
TEXT_TO_IMAGE, IMAGE_TEXT_TO_IMAGE = "TEXT_TO_IMAGE", "IMAGE_TEXT_TO_IMAGE"
TEXT_TO_VIDEO, IMAGE_TEXT_TO_VIDEO = "TEXT_TO_VIDEO", "IMAGE_TEXT_TO_VIDEO"
OMNI = ("TEXT_TO_AUDIO", "IMAGE_TEXT_TO_AUDIO", "VIDEO_TEXT_TO_AUDIO", AUDIO_TO_TEXT, "AUDIO_TO_AUDIO")

PIPELINES: Mapping[str, Sequence[str]] = {
    IMAGE_TEXT_TO_IMAGE: ("imageedit", "pix2pix", "img2img", "inpaint", "kontext"),
    TEXT_TO_IMAGE: ("image", "pix", "stablediffusion", "flux", "sana", "lumina", "kandinsky"),
    TEXT_TO_VIDEO: ("texttovideo", "t2v"),
    IMAGE_TEXT_TO_VIDEO: ("video",),
}
"""Capability -> substrings of the lower-case class names of diffusion pipelines with this capability. The first match
counts."""
SPEECH = ("whisper", "wav2vec2", "hubert", "forctc", "forspeechtotext")
ENDPOINTS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "text-generation": (("Chat", "TextGeneration"), ()),
    "feature-extraction": (("Embeddings",), ()),
    "rerank": (("Rerank",), ()),
    "automatic-speech-recognition": (("SpeechToText",), ("AudioInput",)),
    "text-to-speech": (("TextToSpeech",), ("AudioOutput",)),
    "text-to-audio": (("AudioGeneration",), ("AudioOutput",)),
    "translation": (("Translation",), ()),
    "image-classification": (("ImageClassification",), ("VisionInput",)),
    "object-detection": (("ObjectDetection",), ("VisionInput",)),
    "image-segmentation": (("ImageSegmentation",), ("VisionInput",)),
    "image-to-text": (("Chat", "ImageToText"), ("VisionInput", "MultiModalInput")),
    "visual-question-answering": (("VisualQuestionAnswering",), ("VisionInput", "MultiModalInput")),
    "text-to-image": (("ImageGeneration",), ("ImageOutput",)),
    "image-to-image": (("ImageGeneration",), ("VisionInput", "ImageOutput")),
    "text-to-video": (("VideoGeneration",), ("VideoOutput",)),
    "image-to-video": (("VideoGeneration",), ("VisionInput", "VideoOutput")),
    "video-to-video": (("VideoGeneration",), ("VideoInput", "VideoOutput")),
}
"""Task -> its endpoint types, and its features, which are inputs and outputs besides text."""
SAME_TASKS: Mapping[str, str] = {
    "text2text-generation": "text-generation",
    "summarization": "text-generation",
    "conversational": "text-generation",
    "embeddings": "feature-extraction",
    "embedding": "feature-extraction",
    "text-embeddings-inference": "feature-extraction",
    "sentence-similarity": "feature-extraction",
    "reranker": "rerank",
    "text-ranking": "rerank",
    "speech-to-text": "automatic-speech-recognition",
    "text-to-music": "text-to-audio",
    "audio-generation": "text-to-audio",
    "image-text-to-text": "image-to-text",
    "document-question-answering": "visual-question-answering",
    "unconditional-image-generation": "text-to-image",
    "image-generation": "text-to-image",
    "inpainting": "image-to-image",
    "image-text-to-image": "image-to-image",
    "video-generation": "text-to-video",
}
"""Task -> the equivalent task in :data:`ENDPOINTS`."""
TASKS: Mapping[str, str] = {
    TEXT_TO_TEXT: "text-generation",
    EMBEDDING: "feature-extraction",
    IMAGE_TEXT_TO_TEXT: "image-to-text",
    AUDIO_TO_TEXT: "automatic-speech-recognition",
    TEXT_TO_IMAGE: "text-to-image",
    IMAGE_TEXT_TO_IMAGE: "image-to-image",
    TEXT_TO_VIDEO: "text-to-video",
    IMAGE_TEXT_TO_VIDEO: "image-to-video",
}
ANY = "any-to-any"
"""A task that carries no information. The model's files describe its capabilities better."""
GENERATES = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")


def endpoints(tasks: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the endpoint types and the features of a model, from its tasks. Unknown tasks add none."""
    kinds: dict[str, None] = {}
    features: dict[str, None] = {}
    for task in tasks:
        support = ENDPOINTS.get(SAME_TASKS.get(usual(task), usual(task)), ((), ()))
        kinds |= dict.fromkeys(support[0])
        features |= dict.fromkeys(support[1])
    return tuple(kinds), tuple(features)


def usual(task: str) -> str:
    """Normalize a task: lower case, without surrounding white space, and with hyphens instead of spaces and
    underscores."""
    return task.lower().strip().replace("_", "-").replace(" ", "-")


def of_pipeline(class_name: str) -> tuple[str, ...]:
    """Return the capabilities of a diffusion pipeline; empty if its class name is unknown."""
    name = class_name.lower()
    return next(((capability,) for capability, words in PIPELINES.items() if _has(name, words)), ())


def of_model(model_type: str, architecture: str, *, sees: bool = False, embeds: bool = False) -> tuple[str, ...]:
    """Return the capabilities of a transformers model. ``sees``: whether the model has a vision component; ``embeds``:
    whether its files declare an embedding model. A model without signs of another capability generates text."""
    type_, name = model_type.lower(), architecture.lower()
    both = f"{type_} {name}"
    if "nemotronh_nano" in both:
        return IMAGE_TEXT_TO_TEXT, TEXT_TO_TEXT, AUDIO_TO_TEXT
    if sees:
        return (IMAGE_TEXT_TO_TEXT,)
    if "omni" in both:
        return OMNI
    if _has(both, SPEECH):
        return (AUDIO_TO_TEXT,)
    if (
        embeds
        or _has(name, ("embedding", "sentence"))
        or "bert" in type_
        or (type_, name) == ("mistral", "mistralmodel")
    ):
        return (EMBEDDING,)
    return (TEXT_TO_TEXT,)


def task_of(capabilities: Sequence[str], architecture: str) -> str:
    """Derive the task of a model from the first capability in ``TASKS``; empty if there is none. Text generation is the
    default capability, so ``architecture``, if known, must confirm it."""
    first = next((capability for capability in capabilities if capability in TASKS), "")
    if first == TEXT_TO_TEXT and architecture and not architecture.endswith(GENERATES):
        return ""
    return TASKS.get(first, "")


def _has(name: str, words: Sequence[str]) -> bool:
    return any(word in name for word in words)
