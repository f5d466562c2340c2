"""Decoders for untrusted JSON and YAML, such as annotations, ConfigMaps and responses of pods.

Untrusted text can contain anything. Every failure therefore raises DecodingError, even if deep nesting causes a
RecursionError, and text above its maximum length is rejected before it is parsed.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar, overload

import msgspec
import yaml

T = TypeVar("T")
Text = bytes | bytearray | msgspec.Raw | str

MESSAGE_CHARACTERS = 300
"""Maximum number of characters in an error message, because messages quote untrusted text in logs, conditions and
Events."""


_SURROGATE = re.compile(r"\\(?:u|U0000)[dD][89a-fA-F]")
"""Escaped surrogates, which YAML accepts but which cannot be encoded as UTF-8."""
_BRACKET = re.compile(r"[][{}]")
YAML_DEPTH = 64
"""Maximum nesting of brackets in YAML. Brackets inside strings count as well."""


class DecodingError(ValueError):
    """An error for invalid text. Its message is one printable line of at most ``MESSAGE_CHARACTERS``."""


@overload
def decode_json(text: Text, *, most: int) -> Any:
    """Decode JSON into plain values."""


@overload
def decode_json(text: Text, type_: type[T], *, most: int) -> T:
    """Decode JSON into a type that msgspec supports."""


def decode_json(text: Text, type_: Any = Any, *, most: int) -> Any:
    """Decode JSON of at most ``most`` bytes into a type that msgspec supports. Raise DecodingError for longer text,
    invalid JSON, and values that do not match the type."""
    if len(text) > most or isinstance(text, str):
        refuse_longer(text, most)
    try:
        return msgspec.json.decode(text, type=type_)
    except RecursionError as error:
        raise DecodingError("it is nested too deep") from error
    except ValueError as error:  # msgspec's errors and those of Unicode are ValueErrors
        raise DecodingError(describe_error(error)) from error


def decode_yaml(text: str, *, most: int) -> Any:
    """Decode one YAML document of at most ``most`` bytes into plain values. Return None for empty text. Raise
    DecodingError for longer text, invalid YAML, several documents, and brackets nested deeper than ``YAML_DEPTH``."""
    refuse_longer(text, most)
    depth = 0
    for bracket in _BRACKET.findall(text):  # the parser's time grows with the cube of the depth
        depth += 1 if bracket in "[{" else -1
        if depth > YAML_DEPTH:
            raise DecodingError("it is nested too deep")
    if _SURROGATE.search(text):
        raise DecodingError("it has half a surrogate pair: write \\U0001f600 instead of two \\u escapes")
    try:
        return yaml.safe_load(text)
    except RecursionError as error:
        raise DecodingError("it is nested too deep") from error
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:  # invalid dates and numbers
        raise DecodingError(describe_error(error)) from error


def refuse_longer(text: Text, most: int) -> None:
    """Raise DecodingError for text of more than ``most`` bytes."""
    size = len(text)
    if size <= most and isinstance(text, str) and not text.isascii():  # only then are there more bytes than characters
        size = len(text.encode(errors="replace"))
    if size > most:
        raise DecodingError(f"it is longer than {most} bytes")


def describe_error(error: BaseException) -> str:
    """Return an exception's message as one printable line of limited length, or its type if it has no message."""
    words = " ".join(str(error)[: 4 * MESSAGE_CHARACTERS].split())
    line = "".join(character if character.isprintable() else "?" for character in words)
    if len(line) > MESSAGE_CHARACTERS:
        line = f"{line[: MESSAGE_CHARACTERS - 3]}..."
    return line or type(error).__name__
