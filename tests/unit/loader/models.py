"""Small models in the formats that are published."""

from __future__ import annotations

import json
import random
import struct

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
TOKENIZER = {"chat_template": "{% if tools %}{{ tools }}{% endif %}"}


def tensors(name: str, numbers: int, seed: int = 1) -> bytes:
    """A safetensors file with one tensor."""
    header = json.dumps({name: {"dtype": "BF16", "shape": [numbers], "data_offsets": [0, 2 * numbers]}}).encode()
    return struct.pack("<Q", len(header)) + header + random.Random(seed).randbytes(2 * numbers)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(numbers: int = 1000, architecture: str = "qwen3", seed: int = 1) -> bytes:
    """A GGUF file with one tensor."""
    keys = (
        (text("general.architecture"), struct.pack("<I", 8) + text(architecture)),
        (text(f"{architecture}.context_length"), struct.pack("<II", 4, 40960)),
        (text("general.file_type"), struct.pack("<II", 4, 15)),
    )
    tensor = text("weight") + struct.pack("<IQIQ", 1, numbers, 0, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(keys)) + b"".join(name + value for name, value in keys) + tensor
    return head + bytes(-len(head) % 32) + random.Random(seed).randbytes(4 * numbers)


LLAMA = {
    "config.json": json.dumps(CONFIG).encode(),
    "tokenizer_config.json": json.dumps(TOKENIZER).encode(),
    "tokenizer.json": b"{}",
    "model-00001-of-00002.safetensors": tensors("a", 200_000, 1),
    "model-00002-of-00002.safetensors": tensors("b", 150_000, 2),
}
"""Two of its files are larger than what the tests call small."""
BESIDE = {"README.md": b"words", "onnx/model.onnx": b"o", "LICENSE": b"mit", "pytorch_model.bin": b"pickle"}
"""What stays behind."""
