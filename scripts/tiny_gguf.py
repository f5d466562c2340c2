"""Write a tiny GGUF model: the llama architecture, a byte-level tokenizer, random weights; under 700 KB.

The real llama.cpp loads and serves it like any other model, chat, completions and embeddings, within milliseconds; what
it says is noise. So a demo or a test needs no download, and the file fits into a ConfigMap (1 MiB with base64).

usage: tiny_gguf.py OUTPUT [--seed N]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gguf
import numpy as np

EMBEDDING = 64
BLOCKS = 2
HEADS = 4
FEED_FORWARD = 128
CONTEXT = 4096
"""Tokens. It costs nothing in the file; large enough that a test's prompt of a few kilobytes fits."""

UNKNOWN, BEGIN, END = 0, 1, 2
CHAT_TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"


def vocabulary() -> tuple[list[bytes], list[gguf.TokenType]]:
    """Pieces and their types, in the order of SentencePiece: three control pieces, all bytes, then printable ASCII."""
    control = [(b"<unk>", gguf.TokenType.UNKNOWN), (b"<s>", gguf.TokenType.CONTROL), (b"</s>", gguf.TokenType.CONTROL)]
    every_byte = [(f"<0x{value:02X}>".encode(), gguf.TokenType.BYTE) for value in range(256)]
    space = ("\N{LOWER ONE EIGHTH BLOCK}".encode(), gguf.TokenType.NORMAL)
    printable = [(bytes([value]), gguf.TokenType.NORMAL) for value in range(0x21, 0x7F)]
    pieces, types = zip(*control, *every_byte, space, *printable, strict=True)
    return list(pieces), list(types)


def write_metadata(writer: gguf.GGUFWriter, pieces: list[bytes], types: list[gguf.TokenType]) -> None:
    writer.add_name("tiny-random")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(EMBEDDING)
    writer.add_block_count(BLOCKS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(EMBEDDING // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    # With it --embeddings alone is enough for /v1/embeddings; generation takes no notice of it.
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_vocab_size(len(pieces))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(pieces)
    writer.add_token_types(types)
    # No piece is longer than one character, so scores decide nothing; later pieces only rank lower, as is usual.
    writer.add_token_scores([0.0 if kind != gguf.TokenType.NORMAL else -float(at) for at, kind in enumerate(types)])
    writer.add_unk_token_id(UNKNOWN)
    writer.add_bos_token_id(BEGIN)
    writer.add_eos_token_id(END)
    writer.add_chat_template(CHAT_TEMPLATE)


def write_weights(writer: gguf.GGUFWriter, words: int, seed: int) -> None:
    random = np.random.default_rng(seed)

    def matrix(name: str, rows: int, columns: int) -> None:
        writer.add_tensor(f"{name}.weight", random.normal(0.0, 0.08, (rows, columns)).astype(np.float32))

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(EMBEDDING, np.float32))

    matrix("token_embd", words, EMBEDDING)
    for block in range(BLOCKS):
        norm(f"blk.{block}.attn_norm")
        for part in ("q", "k", "v", "output"):
            matrix(f"blk.{block}.attn_{part}", EMBEDDING, EMBEDDING)
        norm(f"blk.{block}.ffn_norm")
        matrix(f"blk.{block}.ffn_gate", FEED_FORWARD, EMBEDDING)
        matrix(f"blk.{block}.ffn_up", FEED_FORWARD, EMBEDDING)
        matrix(f"blk.{block}.ffn_down", EMBEDDING, FEED_FORWARD)
    norm("output_norm")
    matrix("output", words, EMBEDDING)


def write(path: Path, seed: int) -> None:
    """Write the model; the same seed gives the same bytes."""
    pieces, types = vocabulary()
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, "llama")
    write_metadata(writer, pieces, types)
    write_weights(writer, len(pieces), seed)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    write(arguments.output, arguments.seed)


if __name__ == "__main__":
    main()
