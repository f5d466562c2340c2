"""Every error that the gateway itself answers, in OpenAI's shape.

No text of the user stands in them: HAProxy cannot escape it dependably. The one message that names a model is made in
Lua (`surface.lua`), which can.
"""

from __future__ import annotations

import json
from typing import NamedTuple

INVALID = "invalid_request_error"
SERVER = "server_error"


class Failure(NamedTuple):
    """One error: HTTP status and the four fields of OpenAI's error object. `retry_after`: seconds, 0 for none."""

    status: int
    message: str
    type: str = INVALID
    param: str | None = None
    code: str | None = None
    retry_after: int = 0

    def body(self) -> str:
        """The error object as JSON, free of characters that HAProxy's quoting would need to escape."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return json.dumps({"error": error}, ensure_ascii=True)


BROKEN = Failure(400, "The body of the request is not a valid JSON object.")
NO_FORM = Failure(400, "The body of the request is not a valid form: send it as multipart/form-data.")
DUPLICATE = Failure(400, "The body of the request holds the key model more than once.", param="model")
MISSING = Failure(400, "You must provide a model parameter.", param="model")
NOT_TEXT = Failure(400, "The model parameter must be a string.", param="model")
TOO_COMPLEX = Failure(
    400,
    "The body is too complex to be searched for its model: write the key model once, first and plainly.",
    param="model",
)
CONTROL = Failure(400, "The model parameter holds control characters.", param="model")
OTHER_CASE = Failure(
    400, "The body of the request holds the key model with capital letters: write it in lower case.", param="model"
)
BAD_SELECTOR = Failure(400, "The header X-Label-Selector is not a label selector of Kubernetes.")
LONG_SELECTOR = Failure(400, "The header X-Label-Selector has more than 1024 characters.")
NO_KEY = Failure(
    401, "No API key, or an incorrect one: send the header Authorization: Bearer KEY.", code="invalid_api_key"
)
UNKNOWN_PATH = Failure(404, "There is nothing at this path. The API begins at /v1/.", code="unknown_url")
WRONG_METHOD = Failure(405, "This path does not take this method.", code="method_not_supported")
TOO_LARGE = Failure(413, "The body of the request is larger than this gateway accepts.", code="request_too_large")
TOO_MANY = Failure(429, "Too many requests wait already.", "rate_limit_error", code="too_many_waiting", retry_after=5)
CROWDED = Failure(
    429,
    "Too many large requests are being read already.",
    "rate_limit_error",
    code="too_many_bodies",
    retry_after=5,
)
NOT_READY = Failure(
    503,
    "The model has no ready server. The status of its resource in the cluster says why.",
    SERVER,
    code="model_not_ready",
    retry_after=10,
)

REFUSALS = {
    "broken": BROKEN,
    "form": NO_FORM,
    "duplicate": DUPLICATE,
    "missing": MISSING,
    "type": NOT_TEXT,
    "control": CONTROL,
    "case": OTHER_CASE,
    "complex": TOO_COMPLEX,
    "crowded": CROWDED,
}
"""What our Lua files refuse, by the reason that they give."""

BY_STATUS = (
    Failure(400, "The request is not valid HTTP."),
    NO_KEY,
    Failure(403, "The request is not allowed."),
    UNKNOWN_PATH,
    WRONG_METHOD,
    Failure(407, "The request is not allowed."),
    Failure(408, "The request did not arrive completely in time.", code="request_timeout"),
    Failure(410, "This is gone."),
    TOO_LARGE,
    Failure(414, "The URL of the request is too long."),
    Failure(421, "This server does not answer for this host."),
    Failure(422, "The request cannot be processed."),
    Failure(425, "The request came too early.", retry_after=1),
    TOO_MANY,
    Failure(431, "The header of the request is too large."),
    Failure(500, "The gateway failed to handle the request.", SERVER),
    Failure(501, "The gateway does not know this method or transfer encoding."),
    Failure(502, "The server of the model gave no valid answer.", SERVER, code="bad_gateway"),
    Failure(503, "No server of the model can be reached.", SERVER, code="model_unavailable", retry_after=5),
    Failure(504, "The server of the model did not answer in time.", SERVER, code="upstream_timeout"),
)
"""What HAProxy says by itself, for every status that it can make up."""

REASONS = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    407: "Proxy Authentication Required",
    408: "Request Timeout",
    410: "Gone",
    413: "Content Too Large",
    414: "URI Too Long",
    421: "Misdirected Request",
    422: "Unprocessable Content",
    425: "Too Early",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


def error_file(failure: Failure) -> str:
    """The whole HTTP response, as HAProxy's ``errorfile`` wants it."""
    body = failure.body()
    retry = f"retry-after: {failure.retry_after}\r\n" if failure.retry_after else ""
    return (
        f"HTTP/1.1 {failure.status} {REASONS[failure.status]}\r\ncontent-type: application/json\r\n{retry}"
        f"content-length: {len(body)}\r\n\r\n{body}"
    )


def return_rule(failure: Failure) -> str:
    """``return`` arguments of an http-request rule that answers with this error."""
    headers = f" hdr retry-after {failure.retry_after}" if failure.retry_after else ""
    return f"return status {failure.status} content-type application/json{headers} string '{failure.body()}'"


def lua_module() -> str:
    """The Lua module ``failures``: status, seconds to wait and body of each of REFUSALS."""
    entries = "".join(
        f"    {reason} ="
        f" {{status = {failure.status}, retry_after = {failure.retry_after}, body = [[{failure.body()}]]}},\n"
        for reason, failure in REFUSALS.items()
    )
    return f"return {{\n{entries}}}\n"
