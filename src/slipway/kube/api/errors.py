"""Errors of requests to the API server, as types that callers can distinguish.

The base class holds the server's response. ``error_from`` maps an HTTP status (and its body, a ``Status`` object if the
API server wrote it) to the type.
"""

from __future__ import annotations

import re

import msgspec

from slipway.decoding import DecodingError, decode_json, describe_error
from slipway.kube.objects import Object

STATUS_BYTES = 1 << 20
"""Of an answer that says what went wrong."""
MOST_RETRY_SECONDS = 300.0
"""The longest wait that is taken from an answer: an informer that waits for ever sees nothing any more."""


class ApiError(Exception):
    """A request that failed.

    ``status`` is the HTTP status (0: there was no answer), ``reason`` the API server's word (``NotFound``,
    ``Invalid``), ``retry_after`` the seconds that the server asked to wait, ``causes`` its field errors as
    ``(field, message)``, ``name`` the object that it names.
    """

    reason = "ApiError"
    """Of an answer that names none."""

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
    """404: no such object, namespace or kind."""

    reason = "NotFound"


class ConflictError(ApiError):
    """409: the object changed since it was read, a precondition failed, or the name exists already."""

    reason = "Conflict"


class GoneError(ApiError):
    """410: the resource version or the list's continue token is too old."""

    reason = "Gone"


class InvalidObjectError(ApiError):
    """400 or 422: the server will not take this object however often it is sent."""

    reason = "Invalid"


class ForbiddenError(ApiError):
    """403: a right is missing, a quota is used up, an admission rule refused, or the namespace is being deleted."""

    reason = "Forbidden"


class UnauthorizedError(ApiError):
    """401: the credentials are not (or no longer) good."""

    reason = "Unauthorized"


class TooManyRequestsError(ApiError):
    """429: come back after ``retry_after`` seconds."""

    reason = "TooManyRequests"


class ServerError(ApiError):
    """5xx, or an invalid response."""

    reason = "ServerError"


class UnreachableError(ApiError):
    """There was no response; a write may or may not have happened."""

    reason = "Unreachable"


class ConnectionFailedError(UnreachableError):
    """The connection could not be made, or broke."""

    reason = "ConnectionFailed"


class RequestTimeoutError(UnreachableError):
    """The answer took too long."""

    reason = "RequestTimeout"


class NotLeaderError(ApiError):
    """This process is not the leader (any more), so the write was not sent."""

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
"""What the API server says, with the status 500, of an object applied to it that it cannot read, such as the quantity
1GB. It never will."""


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
    """Returns the error for a ``Status`` object. ``status``: the HTTP status, if the object has no code. Webhooks and
    other servers behind the API server write it: an invalid Status gives a ServerError.

    Webhooks and other servers behind the API server fill it in: what is no Status is a ServerError.
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
    """The error that an HTTP answer means. A body that is no Status (a proxy's page) is quoted, cut at 200 bytes."""
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
