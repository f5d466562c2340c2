"""Writes a library that stands for CUDA's, for machines that have no compiler: it starts, and offers some GPUs.

usage: cuda.py FILE [COUNT] [CODE]    CODE: the error with which cuInit ends

It is the smallest library that the loader takes, for amd64 and arm64: one segment with the tables by which the loader
finds three functions, and the functions.
"""

import platform
import struct
import sys
from pathlib import Path

BASE = 0x200
FUNCTIONS = ("cuInit", "cuDriverGetVersion", "cuDeviceGetCount")
VERSION = 13000


def amd64(code=0, stored=None):
    """Machine code of a function that returns ``code``, after it has stored a number where its argument points to."""
    store = b"" if stored is None else b"\xc7\x07" + struct.pack("<i", stored)
    return store + b"\xb8" + struct.pack("<i", code) + b"\xc3"


def arm64(code=0, stored=None):
    def move(register, value):
        return struct.pack("<I", 0x52800000 | (value & 0xFFFF) << 5 | register)

    store = b"" if stored is None else move(1, stored) + struct.pack("<I", 0xB9000001)
    return store + move(0, code) + struct.pack("<I", 0xD65F03C0)


MACHINES = {"x86_64": (62, amd64), "aarch64": (183, arm64)}


def library(count, code):
    machine, function = MACHINES[platform.machine()]
    bodies = [function(code), function(stored=VERSION), function(stored=count)]
    names = b"\0" + b"".join(name.encode() + b"\0" for name in FUNCTIONS)
    number = len(FUNCTIONS) + 1
    # One bucket, whose chain leads through all symbols.
    table = struct.pack("<5I", 1, number, 1, 0, 2) + struct.pack("<2I", 3, 0)
    symbols, strings, hashes, text = BASE, BASE + 24 * number, BASE + 0x100, BASE + 0x180
    symbol_rows = [bytes(24)]
    for name, body, place in zip(FUNCTIONS, bodies, range(text, text + 0x60, 0x20), strict=True):
        start = names.index(b"\0" + name.encode() + b"\0") + 1
        symbol_rows.append(struct.pack("<IBBHQQ", start, 0x12, 0, 1, place, len(body)))
    entries = [(4, hashes), (5, strings), (6, symbols), (10, len(names)), (11, 24), (0, 0)]
    dynamic = b"".join(struct.pack("<QQ", *entry) for entry in entries)
    size = text + 0x60
    header = struct.pack(
        "<4s5B7xHHIQQQIHHHHHH",
        b"\x7fELF", 2, 1, 1, 0, 0, 3, machine, 1, 0, 64, 0, 0, 64, 56, 3, 64, 0, 0,
    )  # fmt: skip
    # Readable, writable and executable at once: the loader writes into its tables.
    segments = struct.pack("<IIQQQQQQ", 1, 7, 0, 0, 0, size, size, 0x10000)
    segments += struct.pack("<IIQQQQQQ", 2, 6, 0x100, 0x100, 0x100, len(dynamic), len(dynamic), 8)
    # Its functions need no stack that can be executed, which a loader may refuse.
    segments += struct.pack("<IIQQQQQQ", 0x6474E551, 6, 0, 0, 0, 0, 0, 16)
    image = bytearray(size)
    parts = {0: header + segments, 0x100: dynamic, symbols: b"".join(symbol_rows), strings: names, hashes: table}
    parts.update(zip(range(text, text + 0x60, 0x20), bodies, strict=True))
    for place, part in parts.items():
        image[place : place + len(part)] = part
    return bytes(image)


if __name__ == "__main__":
    count, code = ([int(word) for word in sys.argv[2:]] + [1, 0][len(sys.argv[2:]) :])[:2]
    Path(sys.argv[1]).write_bytes(library(count, code))
