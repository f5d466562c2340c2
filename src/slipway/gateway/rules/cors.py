"""Rules for CORS, which decides whether pages of other origins may read answers in a browser. Pure.

Only the configured origins are allowed. Pages send keys in headers, so no answer allows credentials that the browser
has stored. The rules remove CORS headers of engines, because engines must not allow origins. Without configured
origins, there are no rules and no cost.
"""

from __future__ import annotations

from slipway.gateway.settings import Settings

ORIGIN = "txn.origin"
"""HAProxy variable with the origin of the request; unset unless the origin is allowed."""
_EXPOSED = (
    "retry-after",
    "x-request-id",
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
)
_SECONDS = 600
"""Seconds for which a browser may cache the answer to a preflight request."""


def rules(settings: Settings) -> tuple[str, ...]:
    """Return the CORS rules of the public frontend. They must precede the check of API keys, because preflight requests
    contain no key. Empty if no origins are configured."""
    if not settings.cors_origins:
        return ()
    from_page = f"{{ var({ORIGIN}) -m found }}"
    return (
        f"""\
    http-request set-var({ORIGIN}) req.fhdr(origin) if {{ req.fhdr(origin) -m str {" ".join(settings.cors_origins)} }}
    acl preflight method OPTIONS
    acl asks req.fhdr(access-control-request-method) -m found
    http-request set-var(txn.preflight) req.fhdr(access-control-request-headers) if preflight asks {from_page}
    http-request set-var(txn.preflight) str() if preflight asks {from_page} !{{ var(txn.preflight) -m found }}
    http-request return status 204 if {{ var(txn.preflight) -m found }}
    http-after-response del-header access-control- -m beg
    http-after-response add-header vary origin
    http-after-response set-header access-control-allow-origin %[var({ORIGIN})] if {from_page}
    http-after-response set-header access-control-expose-headers "{", ".join(_EXPOSED)}" if {from_page}
    acl told var(txn.preflight) -m found
    http-after-response set-header access-control-allow-methods "GET, POST, DELETE" if told
    http-after-response set-header access-control-allow-headers %[var(txn.preflight)] if told
    http-after-response set-header access-control-max-age {_SECONDS} if told""",
    )
