"""Errors of requests to the API server, as types that callers can distinguish.

The base class contains the server's response. :func:`error_from_body` maps an HTTP status and its body, a ``Status``
object if the API server wrote it, to the type.
"""

from __future__ import annotations

import re

import msgspec

from slipway.decoding import DecodingError, decode_json, describe_error
from slipway.kube.objects import Object

STATUS_BYTES = 1 << 20
"""Maximum number of bytes to read of an error response."""
MOST_RETRY_SECONDS = 300.0
"""Longest accepted Retry-After in seconds. An informer that waits indefinitely misses every change."""


class ApiError(Exception):
    """A request to the API server failed.

    ``status`` is the HTTP status, or 0 if there was no response or the response was successful but invalid. ``reason``
    is the API server's reason, such as ``NotFound``. ``retry_after`` is the seconds to wait before a retry, or None if
    the response does not name any. ``causes`` are the field errors as ``(field, message)``, and ``name`` is the object
    that the response names.
    """

    reason = "ApiError"
    """The reason to use if the response has none."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        retry_after: float | None = None,
        causes: tuple[tuple[str, str], ...] = (),
        name: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason or type(self).reason
        self.retry_after = retry_after
        self.causes = causes
        self.name = name


class NotFoundError(ApiError):
    """404: the object, namespace or kind does not exist."""

    reason = "NotFound"


class ConflictError(ApiError):
    """409: the object changed since it was read, a precondition failed, or an object with the same name exists."""

    reason = "Conflict"


class GoneError(ApiError):
    """410: the resource version or the list's continue token is too old."""

    reason = "Gone"


class InvalidObjectError(ApiError):
    """400, 413, 415 or 422, or a 500 for an object that the server cannot parse: the server will never accept this
    object."""

    reason = "Invalid"


class ForbiddenError(ApiError):
    """403: a permission is missing, a quota is exhausted, an admission rule rejected the object, or the namespace is
    terminating."""

    reason = "Forbidden"


class UnauthorizedError(ApiError):
    """401: the credentials are invalid or expired."""

    reason = "Unauthorized"


class TooManyRequestsError(ApiError):
    """429: the server is overloaded. Retry after ``retry_after`` seconds if it is set."""

    reason = "TooManyRequests"


class ServerError(ApiError):
    """5xx or another status without its own class, or an invalid response."""

    reason = "ServerError"


class UnreachableError(ApiError):
    """There was no response. If the request was a write, it may or may not have taken effect."""

    reason = "Unreachable"


class ConnectionFailedError(UnreachableError):
    """The connection to the API server could not be opened, or it broke."""

    reason = "ConnectionFailed"


class RequestTimeoutError(UnreachableError):
    """The API server did not respond in time."""

    reason = "RequestTimeout"


class NotLeaderError(ApiError):
    """This process is not, or no longer, the leader, so the write was not sent."""

    reason = "NotLeader"


_TYPES: dict[int, type[ApiError]] = {
    400: InvalidObjectError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    413: InvalidObjectError,
    415: InvalidObjectError,
    422: InvalidObjectError,
    429: TooManyRequestsError,
}


_UNREADABLE = re.compile(r"failed to convert new object|failed to create typed patch object")
"""Pattern of the API server's message if it cannot parse an applied object, such as one with the quantity 1GB. The HTTP
status is 500, but the error is permanent."""


class _Cause(msgspec.Struct):
    field: str = ""
    message: str = ""


class _Details(msgspec.Struct, rename="camel"):
    name: str | None = None
    causes: list[_Cause] | None = None
    retry_after_seconds: float | None = None


class _Status(msgspec.Struct):
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: _Details | None = None


def error_from_status(answer: Object, status: int = 0, retry_after: float | None = None) -> ApiError:
    """Return the error for a ``Status`` object. ``status`` is the HTTP status to use if the object has no code.
    ``retry_after`` is the seconds from the response's header, which take precedence over those in the object.

    Webhooks and other servers behind the API server write this object, so it may be invalid. Such an object becomes a
    ServerError.
    """
    try:
        decoded = msgspec.convert(answer, _Status)
    except msgspec.ValidationError as error:
        return ServerError(
            f"HTTP {status} with a malformed Status: {describe_error(error)}", status=status, retry_after=retry_after
        )
    code, reason, details = decoded.code or status, decoded.reason or "", decoded.details or _Details()
    if retry_after is None and details.retry_after_seconds:
        retry_after = _bounded(details.retry_after_seconds)
    kind = GoneError if reason == "Expired" else _TYPES.get(code, ServerError)
    if code >= 500 and _UNREADABLE.search(decoded.message or ""):
        kind, reason = InvalidObjectError, InvalidObjectError.reason
    return kind(
        decoded.message or f"HTTP {code}",
        status=code,
        reason=reason,
        retry_after=retry_after,
        causes=tuple((cause.field, cause.message) for cause in details.causes or ()),
        name=details.name or "",
    )


def error_from_body(status: int, body: bytes | bytearray, retry_after: str | None = None) -> ApiError:
    """Return the error for an HTTP response. ``retry_after`` is the value of its header, and is ignored unless it is a
    number of seconds. The message quotes up to 200 bytes of a body that is not a Status, such as a proxy's page."""
    wait = _bounded(float(retry_after)) if retry_after and retry_after.isdecimal() else None
    try:
        answer = decode_json(body, most=STATUS_BYTES)
    except DecodingError:
        answer = None
    if not isinstance(answer, dict) or answer.get("kind") != "Status":
        text = body[:200].decode(errors="replace").strip()
        answer = {"message": f"HTTP {status}: {text}" if text else f"HTTP {status}"}
    return error_from_status(answer, status, wait)


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), MOST_RETRY_SECONDS)
