"""The summary of a genai-bench benchmark, which the loader writes into its container's termination message.

A run is one scenario at one level of concurrency. All runs must fit into a termination message, so each run is encoded
as an array without field names. Other writers can change a pod's status, so an invalid summary counts as missing.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from slipway.artifacts.documents.report import LONGEST, MESSAGE_BYTES
from slipway.decoding import DecodingError, decode_json

ERROR_CHARACTERS = 300
SCENARIO_CHARACTERS = 60
Count = Annotated[int, msgspec.Meta(ge=0)]
Figure = Annotated[float, msgspec.Meta(ge=0)]


class Run(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One scenario at one level of concurrency, encoded as a JSON array in the order of the fields."""

    scenario: Annotated[str, msgspec.Meta(max_length=SCENARIO_CHARACTERS)]
    concurrency: Count
    """Number of concurrent requests; for embeddings, the number of texts in each request."""
    requests: Count
    failed: Count
    """Number of failed requests, included in ``requests``."""
    seconds: Figure
    """Duration of the run."""
    requests_per_second: Figure
    """Successful requests per second."""
    input_tokens_per_second: Figure
    output_tokens_per_second: Figure
    first_token_seconds: Figure
    """Mean time to the first token."""
    first_token_seconds_p99: Figure


NAMES = {
    field: "".join(word if not index else word.capitalize() for index, word in enumerate(field.split("_")))
    for field in Run.__struct_fields__
}
"""Field of :class:`Run` -> its camelCase name in :func:`details`."""


class Summary(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The totals of a benchmark, and the figures of its runs."""

    requests: Count = 0
    failed: Count = 0
    error: Annotated[str, msgspec.Meta(max_length=ERROR_CHARACTERS)] = ""
    """Error message of the first failed request."""
    runs: tuple[Run, ...] = ()
    omitted: Count = 0
    """Number of runs omitted to keep the message short; the totals include them."""


def encode_summary(summary: Summary) -> bytes:
    """Encode a summary as JSON of at most ``LONGEST`` bytes. Omit the last runs if they do not fit."""
    runs = summary.runs
    while True:
        excerpt = msgspec.structs.replace(summary, runs=runs, omitted=len(summary.runs) - len(runs))
        text = msgspec.json.encode(excerpt)
        if len(text) <= LONGEST or not runs:
            return text
        runs = runs[:-1]


def parse_summary(message: str) -> Summary | None:
    """Parse a summary. Return None if the message is not a summary."""
    try:
        return decode_json(message, Summary, most=MESSAGE_BYTES)
    except DecodingError:
        return None


def details(summary: Summary) -> str:
    """Return the totals and the runs of a summary as JSON, in which every figure of a run has a name. Omit the error
    message."""
    runs = [{name: getattr(run, field) for field, name in NAMES.items()} for run in summary.runs]
    document = {"requests": summary.requests, "failed": summary.failed, "runs": runs}
    return msgspec.json.encode(document | ({"omitted": summary.omitted} if summary.omitted else {})).decode()
