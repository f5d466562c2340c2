"""The gateway's own error responses, in OpenAI's format, or in Anthropic's format on the paths of Anthropic's API.

The constants in this module contain no text from the user, because HAProxy cannot escape it reliably. Python and Lua
can, so ``not_ready`` and ``unknown_model.lua`` write messages that name a model. Lua also selects the format when an
error occurs, so that successful requests cost nothing.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from slipway.serving.routing import paths

INVALID = "invalid_request_error"
SERVER = "server_error"


class ErrorResponse(NamedTuple):
    """An error response: its HTTP status, the fields of OpenAI's error object, and the seconds in the header
    ``Retry-After``. 0 seconds omit the header."""

    status: int
    message: str
    type: str = INVALID
    param: str | None = None
    code: str | None = None
    retry_after: int = 0

    def body(self) -> str:
        """Return the response body in OpenAI's format, as ASCII JSON."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return json.dumps({"error": error}, ensure_ascii=True)

    def anthropic(self) -> str:
        """Return the response body in Anthropic's format, as JSON without its end. Lua appends the value of the last
        key, which is the ID of the request, and the closing brace."""
        error = {"type": ANTHROPIC_TYPES.get(self.status, "api_error"), "message": self.message, "code": self.code}
        text = json.dumps({"type": "error", "error": error, "request_id": None}, ensure_ascii=True)
        return text.removesuffix("null}")


ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    502: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""HTTP status -> Anthropic's error type."""

INVALID_JSON = ErrorResponse(400, "The request body is not a valid JSON object.")
NO_FORM = ErrorResponse(400, "The request body is not a valid form. Send it as multipart/form-data.")
DUPLICATE = ErrorResponse(400, "The request body contains the key model more than once.", param="model")
MISSING = ErrorResponse(400, "You must provide a model parameter.", param="model")
NOT_TEXT = ErrorResponse(400, "The model parameter must be a string.", param="model")
TOO_COMPLEX = ErrorResponse(
    400,
    "The request body is too complex to find its model. Write the key model once, first and without escapes.",
    param="model",
)
CONTROL = ErrorResponse(400, "The model parameter contains control characters.", param="model")
OTHER_CASE = ErrorResponse(
    400, "The request body contains the key model in capital letters. Write it in lower case.", param="model"
)
BAD_SELECTOR = ErrorResponse(400, "The header X-Label-Selector is not a Kubernetes label selector.")
LONG_SELECTOR = ErrorResponse(400, "The header X-Label-Selector has more than 1024 characters.")
NO_KEY = ErrorResponse(
    401, "The API key is missing or incorrect. Send the header Authorization: Bearer KEY.", code="invalid_api_key"
)
UNKNOWN_SIGNER = ErrorResponse(
    503, "The gateway cannot verify tokens yet. Retry later.", SERVER, code="token_keys_unknown", retry_after=5
)
BAD_SIGNATURE = ErrorResponse(
    401,
    "No key of the issuer with an allowed algorithm verifies the signature of this token. Get a new token.",
    code="invalid_token",
)
WRONG_TOKEN = ErrorResponse(
    401,
    "This gateway does not accept the issuer or the audience of this token. Get a token for this gateway.",
    code="invalid_token",
)
EXPIRED_TOKEN = ErrorResponse(
    401, "This token has expired, or it has no expiry time. Get a new token.", code="token_expired"
)
EARLY_TOKEN = ErrorResponse(401, "This token is not valid yet. Check the clock of its issuer.", code="invalid_token")
NO_SUBJECT = ErrorResponse(
    401, "This token does not name its subject in the claim that this gateway reads.", code="invalid_token"
)
NO_RIGHTS = ErrorResponse(
    403,
    "This token is valid, but its subject has no rights at this gateway. Ask the operator for access.",
    code="no_rights",
)
NO_QUERY = ErrorResponse(400, "This path needs the model in its query: ?model=ID.", param="model")
UNCLEAR_QUERY = ErrorResponse(
    400, "The query contains the parameter model more than once, or encoded names.", param="model"
)
NO_WEBSOCKET = ErrorResponse(400, "This path only accepts WebSockets.")
WRONG_ORIGIN = ErrorResponse(403, "Pages from this origin cannot open a WebSocket.", code="origin_not_allowed")
NO_RESPONSE = ErrorResponse(404, "No pod of the model has this response.", code="response_not_found")
LIST_MODELS = "GET /v1/models lists the models."
"""End of the message about an unknown model. ``unknown_model.lua`` contains the same text."""
LIST = "GET /v1/models lists the models, POST /v1/chat/completions sends a message to one."
"""End of the message about an unknown path. If a served path is similar, ``refusals.lua`` suggests it instead."""
UNKNOWN_PATH = ErrorResponse(
    404,
    f"This path does not exist. {LIST}",
    code="unknown_url",
)
WRONG_METHOD = ErrorResponse(405, "This path does not support this method.", code="method_not_supported")
MOST_BYTES = "@MOST_BYTES@"
"""Placeholder in messages. ``error_file`` and ``lua_module`` replace it with the maximum body size in bytes."""
TOO_LARGE = ErrorResponse(
    413,
    f"The request body is larger than the limit of {MOST_BYTES} bytes. Send less, or ask the operator to raise"
    " gateway_max_body_bytes.",
    code="request_too_large",
)
TOO_MANY = ErrorResponse(
    429, "Too many requests are already waiting.", "rate_limit_error", code="too_many_waiting", retry_after=5
)
CROWDED = ErrorResponse(
    429,
    "Too many large requests are already being read.",
    "rate_limit_error",
    code="too_many_bodies",
    retry_after=5,
)
CROWDED_HOP = ErrorResponse(
    429,
    "Too many concurrent requests from your address.",
    "rate_limit_error",
    code="too_many_requests",
    retry_after=5,
)
ALL_CROWDED = ErrorResponse(
    429,
    "Too many concurrent requests.",
    "rate_limit_error",
    code="too_many_requests",
    retry_after=5,
)
UNKNOWN_LIMITS = ErrorResponse(
    503,
    "The gateway does not know yet how much of the limits is left. Retry later.",
    SERVER,
    code="limits_unknown",
    retry_after=2,
)
UNTARGETED = ErrorResponse(
    403,
    "No target of this model accepts this request, or this API key is not allowed to use any of them.",
    INVALID,
    code="no_target",
)
UNREACHABLE = ErrorResponse(
    503, "No server of the model is reachable.", SERVER, code="model_unavailable", retry_after=5
)

UNKNOWN_YET = ErrorResponse(
    503, "The gateway has not loaded the list of models yet.", SERVER, code="models_unknown", retry_after=5
)


class LimitError(NamedTuple):
    """The error of a request that exceeds a limit. Lua replaces ``@WHO@``, ``@LIMIT@`` and ``@SECONDS@`` in the message
    with the holder of the limit, the limit, and the seconds until a retry."""

    message: str
    type: str
    code: str
    status: int = 429


_MINUTE, _DAY, _RESERVED = "rate_limit_exceeded", "insufficient_quota", "limit_reserved"
LIMITS = {
    "requests": LimitError(
        "@WHO@ has reached its limit of @LIMIT@ requests per minute. Retry in @SECONDS@ s.", "requests", _MINUTE
    ),
    "tokens": LimitError(
        "@WHO@ has reached its limit of @LIMIT@ tokens per minute. Retry in @SECONDS@ s.", "tokens", _MINUTE
    ),
    "requests_reserved": LimitError(
        "Other gateway pods have reserved the rest of the limit of @LIMIT@ requests per minute. Retry in @SECONDS@ s.",
        "requests",
        _RESERVED,
    ),
    "requests_day_reserved": LimitError(
        "Other gateway pods have reserved the rest of the limit of @LIMIT@ requests per day. Retry in @SECONDS@ s.",
        "requests",
        _RESERVED,
    ),
    "at_once": LimitError("@WHO@ has reached its limit of @LIMIT@ concurrent requests.", "requests", _MINUTE),
    "requests_day": LimitError(
        "@WHO@ has reached its limit of @LIMIT@ requests per day. The day ends at 00:00 UTC, in @SECONDS@ s.",
        "requests",
        _DAY,
    ),
    "tokens_day": LimitError(
        "@WHO@ has reached its limit of @LIMIT@ tokens per day. The day ends at 00:00 UTC, in @SECONDS@ s.",
        "tokens",
        _DAY,
    ),
}
"""Name of a limit in ``limits.lua`` -> the error of a request that exceeds it. The suffix ``_reserved`` means that
other gateway pods have reserved the rest of the limit."""

REFUSALS = {
    "broken": INVALID_JSON,
    "form": NO_FORM,
    "duplicate": DUPLICATE,
    "missing": MISSING,
    "type": NOT_TEXT,
    "control": CONTROL,
    "case": OTHER_CASE,
    "complex": TOO_COMPLEX,
    "crowded": CROWDED,
    "untargeted": UNTARGETED,
}
"""Reason of a rejection in Lua -> the error."""

BY_STATUS = (
    ErrorResponse(400, "The request is not valid HTTP."),
    NO_KEY,
    ErrorResponse(403, "The request is not allowed."),
    UNKNOWN_PATH,
    WRONG_METHOD,
    ErrorResponse(407, "The request is not allowed."),
    ErrorResponse(408, "The request did not arrive completely in time.", code="request_timeout"),
    ErrorResponse(410, "This no longer exists."),
    TOO_LARGE,
    ErrorResponse(414, "The URL of the request is too long."),
    ErrorResponse(421, "This server does not serve this host."),
    ErrorResponse(422, "The request cannot be processed."),
    ErrorResponse(425, "The request was sent too early.", retry_after=1),
    TOO_MANY,
    ErrorResponse(431, "The request headers are too large."),
    ErrorResponse(500, "The gateway failed to handle the request.", SERVER),
    ErrorResponse(501, "The gateway does not support this method or transfer encoding."),
    ErrorResponse(502, "The model server returned an invalid response.", SERVER, code="bad_gateway"),
    UNREACHABLE,
    ErrorResponse(504, "The model server did not respond in time.", SERVER, code="upstream_timeout"),
)
"""Errors for every status that HAProxy itself can generate."""

OF_REQUESTS = (408, 500, 502, 503, 504)
"""Statuses in ``BY_STATUS`` that HAProxy may generate after it has read the path, which decides the format."""

FAILURES: dict[str, ErrorResponse] = {
    **{name.lower(): value for name, value in tuple(globals().items()) if isinstance(value, ErrorResponse)},
    **{f"status_{error.status}": error for error in BY_STATUS if error.status in OF_REQUESTS},
    **REFUSALS,
}
"""Name in Lua -> error, for all errors that Lua can write in both formats."""

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


def error_file(error: ErrorResponse, most_bytes: int) -> str:
    """Return the complete HTTP response for HAProxy's ``errorfile``, in OpenAI's format. ``most_bytes`` is the maximum
    size of a request body in bytes."""
    body = error.body().replace(MOST_BYTES, str(most_bytes))
    retry = f"retry-after: {error.retry_after}\r\n" if error.retry_after else ""
    return (
        f"HTTP/1.1 {error.status} {REASONS[error.status]}\r\ncontent-type: application/json\r\n{retry}"
        f"content-length: {len(body)}\r\n\r\n{body}"
    )


def return_rule(error: ErrorResponse, status: int = 0) -> str:
    """Return the action of an ``http-request`` rule that responds with ``error``, which must be in ``FAILURES``. A
    ``status`` other than 0 replaces the status of the error."""
    return f"return {_reply(error, status or error.status)}"


def http_error(error: ErrorResponse) -> str:
    """Return the line of an HAProxy section that replaces HAProxy's own response of the same status with ``error``,
    which must be in ``FAILURES``."""
    return f"http-error {_reply(error, error.status)}"


def _reply(error: ErrorResponse, status: int) -> str:
    headers = f" hdr retry-after {error.retry_after}" if error.retry_after else ""
    name = next(name for name, failure in FAILURES.items() if failure == error)
    return f"status {status} content-type application/json{headers} lf-string '%[lua.failure({name})]'"


def not_ready(model: str, before: str, reason: str) -> str:
    """Return the JSON body of status 503 for a model. ``before`` is the verb of the message, such as ``is rejected``,
    and ``reason`` is one word. ``unknown_model.lua`` writes the same body, but shortens long model IDs."""
    message = f"The model `{model}` {before}: {reason}. See the status of its resource."
    error = {"message": message, "type": SERVER, "param": None, "code": "model_not_ready", "reason": reason}
    return json.dumps({"error": error}, ensure_ascii=True)


def lua_module(most_bytes: int) -> str:
    """Return the source of the Lua module ``failures``: all ``FAILURES`` in both formats, and the data for other
    errors.

    ``most_bytes`` is the maximum size of a request body in bytes.
    """
    entries = "".join(
        f"        {name} = {{status = {error.status}, retry_after = {error.retry_after},"
        f" body = [[{error.body()}]], anthropic = [[{error.anthropic()}]]}},\n"
        for name, error in FAILURES.items()
    )
    limits = "".join(
        f'        {name} = {{status = {limit.status}, type = "{limit.type}", code = "{limit.code}",'
        f" message = [[{limit.message}]]}},\n"
        for name, limit in LIMITS.items()
    )
    types = ", ".join(f'[{status}] = "{name}"' for status, name in ANTHROPIC_TYPES.items())
    entries = entries.replace(MOST_BYTES, str(most_bytes))
    return (
        f"return {{\n    list = [[{LIST.replace('.', '%.')}]],\n"
        f"    first_openai = {paths.FIRST_OPENAI},\n    anthropic_types = {{{types}}},\n"
        f"    by_reason = {{\n{entries}    }},\n    limits = {{\n{limits}    }},\n}}\n"
    )
