"""Writes tiny models with random weights, in the form that the hub has them: they say noise within milliseconds.

usage: weights.py FOLDER

``FOLDER/llama`` generates text, ``FOLDER/adapter`` is a LoRA adapter for it, ``FOLDER/bert`` makes vectors, and
``FOLDER/ranker`` ranks documents. It needs Python alone: the files are written by hand, and are the same each time.
Heads have 64 numbers, as vLLM's CPU kernels refuse 16.
"""

from __future__ import annotations

import json
import random
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

Tensors = dict[str, tuple[int, ...]]
"""Name -> shape."""
HIDDEN, HEADS, KV_HEADS, LAYERS, INNER, RANK = 256, 4, 2, 2, 512, 8
POSITIONS = 2048
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def write_tensors(path: Path, tensors: Tensors) -> None:
    """In the form of safetensors: small random numbers, ones where a name says that it scales."""
    random.seed(0)
    header, place, blocks = {}, 0, []
    for name, shape in tensors.items():
        count = 1
        for size in shape:
            count *= size
        scales = "norm" in name.lower() and name.endswith("weight")
        numbers: Iterable[float] = [1.0] * count if scales else (random.gauss(0, 0.05) for _ in range(count))
        block = struct.pack(f"<{count}f", *numbers)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [place, place + len(block)]}
        place += len(block)
        blocks.append(block)
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(blocks)


def write_json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")


def characters() -> list[str]:
    """What each byte is called in a tokenizer of bytes."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in shown]
    names = {byte: chr(byte) for byte in shown} | {byte: chr(256 + at) for at, byte in enumerate(others)}
    return [names[byte] for byte in range(256)]


def tokenizer(vocabulary: list[str], special: dict[str, int], **more: object) -> dict[str, object]:
    added = [
        {"id": number, "content": text, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False}
        for text, number in special.items()
    ]  # fmt: skip
    vocab = {text: number for number, text in enumerate(vocabulary)}
    model = {"type": "BPE", "vocab": vocab, "merges": [], "byte_fallback": False, "fuse_unk": False}
    return {"version": "1.0", "added_tokens": added, "model": model, **more}


def write_llama(folder: Path) -> None:
    words = ["<s>", "</s>", *characters()]
    bytes_only = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    special = {"<s>": 0, "</s>": 1}
    write_json(folder / "tokenizer.json", tokenizer(words, special, pre_tokenizer=bytes_only, decoder=bytes_only))
    names = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE}
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **names})
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32", "hidden_act": "silu",
        "vocab_size": len(words), "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HIDDEN // HEADS,
        "max_position_embeddings": POSITIONS, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "bos_token_id": 0, "eos_token_id": 1, "tie_word_embeddings": False,
    }  # fmt: skip
    write_json(folder / "config.json", config)
    tensors: Tensors = {"model.embed_tokens.weight": (len(words), HIDDEN), "model.norm.weight": (HIDDEN,)}
    tensors["lm_head.weight"] = (len(words), HIDDEN)
    narrow = HIDDEN // HEADS * KV_HEADS
    for layer in range(LAYERS):
        base = f"model.layers.{layer}"
        tensors |= {f"{base}.{name}_layernorm.weight": (HIDDEN,) for name in ("input", "post_attention")}
        tensors |= {f"{base}.self_attn.{name}_proj.weight": (HIDDEN, HIDDEN) for name in ("q", "o")}
        tensors |= {f"{base}.self_attn.{name}_proj.weight": (narrow, HIDDEN) for name in ("k", "v")}
        tensors |= {f"{base}.mlp.{name}_proj.weight": (INNER, HIDDEN) for name in ("gate", "up")}
        tensors[f"{base}.mlp.down_proj.weight"] = (HIDDEN, INNER)
    write_tensors(folder / "model.safetensors", tensors)


def write_adapter(folder: Path) -> None:
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": 16, "bias": "none"}
    config |= {"target_modules": ["q_proj", "v_proj"], "base_model_name_or_path": "llama"}
    write_json(folder / "adapter_config.json", config)
    tensors: Tensors = {}
    for layer in range(LAYERS):
        for projection, width in (("q_proj", HIDDEN), ("v_proj", HIDDEN // HEADS * KV_HEADS)):
            base = f"base_model.model.model.layers.{layer}.self_attn.{projection}"
            tensors |= {f"{base}.lora_A.weight": (RANK, HIDDEN), f"{base}.lora_B.weight": (width, RANK)}
    write_tensors(folder / "adapter_model.safetensors", tensors)


def write_bert(folder: Path, *, ranks: bool = False) -> None:
    """It makes vectors; or, as a cross-encoder, scores how well a document fits a query."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer", "model_max_length": 128})
    architecture = "BertForSequenceClassification" if ranks else "BertModel"
    config = {
        "architectures": [architecture], "model_type": "bert", "torch_dtype": "float32", "hidden_act": "gelu",
        "vocab_size": len(words), "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "max_position_embeddings": 128, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
        "pad_token_id": 0, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    }  # fmt: skip
    if ranks:
        config |= {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    write_json(folder / "config.json", config)
    square = {"weight": (HIDDEN, HIDDEN), "bias": (HIDDEN,)}
    norm = {"weight": (HIDDEN,), "bias": (HIDDEN,)}
    tensors: Tensors = {
        "embeddings.word_embeddings.weight": (len(words), HIDDEN),
        "embeddings.position_embeddings.weight": (128, HIDDEN),
        "embeddings.token_type_embeddings.weight": (2, HIDDEN),
    }
    parts = {"embeddings.LayerNorm": norm, "pooler.dense": square}
    for layer in range(LAYERS):
        base = f"encoder.layer.{layer}"
        parts |= {f"{base}.attention.self.{name}": square for name in ("query", "key", "value")}
        parts |= {f"{base}.attention.output.dense": square, f"{base}.attention.output.LayerNorm": norm}
        parts |= {f"{base}.intermediate.dense": {"weight": (INNER, HIDDEN), "bias": (INNER,)}}
        parts |= {f"{base}.output.dense": {"weight": (HIDDEN, INNER), "bias": (HIDDEN,)}}
        parts |= {f"{base}.output.LayerNorm": norm}
    tensors |= {f"{name}.{part}": shape for name, shapes in parts.items() for part, shape in shapes.items()}
    if ranks:
        tensors = {f"bert.{name}": shape for name, shape in tensors.items()}
        tensors |= {"classifier.weight": (1, HIDDEN), "classifier.bias": (1,)}
    write_tensors(folder / "model.safetensors", tensors)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    write_llama(folder / "llama")
    write_adapter(folder / "adapter")
    write_bert(folder / "bert")
    write_bert(folder / "ranker", ranks=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
