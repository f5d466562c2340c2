"""The regular expression with which HAProxy reads the model from most small bodies. Pure."""

from __future__ import annotations

# Matches valid JSON: one object with exactly one plain key "model", whose value is a plain non-empty string, without an
# escaped key and without "model" in another case. Every part is possessive or decided by its first character,
# so a failed match does not backtrack.
_SPACE = r"(?<w>[ \t\r\n]*+)"
_STRING = r'(?<s>"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+")'
_NUMBER = r"(?<n>-?+(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+)"
_PAIR = r"(?&s)(?&w):(?&w)(?&v)(?&w)"
_VALUE = (
    rf"(?<v>(?&s)|\{{(?&w)(?:{_PAIR}(?:,(?&w){_PAIR})*+)?+\}}"
    r"|\[(?&w)(?:(?&v)(?&w)(?:,(?&w)(?&v)(?&w))*+)?+\]|true|false|null|(?&n))"
)
_OTHER = r'(?<o>(?!"(?i:model)")"[^"\\\x00-\x1f]*+"(?&w):(?&w)(?&v)(?&w))'
_NAME = r'"model"(?&w):(?&w)"([^"\\\x00-\x1f\x7f]++)"(?&w)'
PLAIN_BODY = (
    rf"^(?(DEFINE){_STRING}{_NUMBER}{_SPACE}{_VALUE}{_OTHER})"
    rf"(?&w)\{{(?&w)(?:(?&o),(?&w))*+{_NAME}(?:,(?&w)(?&o))*+\}}(?&w)\z"
)
NAME_GROUP = 6
"""Number of the regular expression's group with the model's name, which follows the named groups."""
