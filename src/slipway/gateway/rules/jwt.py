"""Rules that accept JSON Web Tokens of an issuer instead of API keys. Pure.

HAProxy itself verifies each token with the issuer's public keys (``jwks.py``). A claim of the token contains the
subject. The rules set two variables: ``txn.holder`` is ``jwt:SUBJECT``, and each holder has separate counts for the
limits. ``txn.key`` is the name of the rights, which is ``jwt:SUBJECT`` or ``jwt:*``. All other rules use ``txn.key``
like the name of an API key.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from slipway.gateway import errors
from slipway.gateway.routing.keys import ANY_SUBJECT, JWT, REFUSED, SUBJECT, Rights
from slipway.gateway.rules import jwks
from slipway.gateway.settings import Jwt, Settings

SUBJECTS_MAP = "subjects.map"
KEYS_KNOWN = "jwt"
"""Key of an entry in ``state.map`` that exists while the gateway has public keys."""
_ACCEPTED, _REFUSED = "1", "0"
_LONGEST_TOKEN = 8192
"""Maximum length of a token in characters."""
_LEEWAY = 30
"""Allowed difference between the clocks of the issuer and the gateway in seconds."""
_AUDIENCES = 8
"""Number of entries in a token's list of audiences that are compared with the required audience."""


def holder_variable(settings: Settings) -> str:
    """Return the HAProxy variable with the name of the key or subject whose limits apply to a request."""
    return "txn.holder" if settings.jwt else "txn.key"


def maps(
    settings: Settings, rights: Mapping[str, Rights], keys: Collection[jwks.VerificationKey]
) -> dict[str, dict[str, str]]:
    """Return the map of subjects with their own rights, and the map of the issuer's keys, by file name. Empty if no
    tokens are accepted."""
    if not settings.jwt:
        return {}
    subjects = {name: _REFUSED if own == REFUSED else _ACCEPTED for name, own in rights.items() if name.startswith(JWT)}
    return {SUBJECTS_MAP: subjects, jwks.MAP: jwks.map_entries(settings.run_directory, keys)}


def certificates(settings: Settings, keys: Collection[jwks.VerificationKey]) -> tuple[str, ...]:
    """Return the section of haproxy.cfg with the keys that HAProxy loads at startup; empty without keys."""
    lines = [f"    load crt {settings.run_directory}/{key.file} jwt on\n" for key in keys]
    return ("crt-store\n" + "".join(lines),) if lines else ()


def global_lines(settings: Settings) -> str:
    """Return the line for the section ``global`` that loads the Lua code for claims; empty if no tokens are
    accepted."""
    return f"    lua-load-per-thread {settings.run_directory}/lua/claims.lua\n" if settings.jwt else ""


def rules(settings: Settings) -> str:
    """Return the rules that identify a client without an API key by its token, and reject invalid tokens. Empty if no
    tokens are accepted."""
    if not settings.jwt:
        return ""
    run = settings.run_directory
    subjects = f"map_str({run}/{SUBJECTS_MAP})"
    return f"""\
{_signature_rules(run)}
{_claim_rules(settings.jwt)}
    http-request set-var(txn.holder) str({JWT}),concat(,txn.subject) if verified
    http-request set-var(txn.key) var(txn.holder) if verified
    http-request set-var(txn.key) str({ANY_SUBJECT}) if verified !{{ var(txn.holder),{subjects} -m found }}
    http-request {errors.return_rule(errors.NO_RIGHTS)} if verified !{{ var(txn.key),{subjects} -m str {_ACCEPTED} }}
    http-request set-var(txn.holder) var(txn.key) unless verified
"""


def _signature_rules(run: str) -> str:
    """Return the rules that verify the signature of a token.

    The key determines the algorithm, and a token with another algorithm is rejected. Tokens with critical extensions
    (``crit``) are also rejected.
    """
    value, key = "var(txn.jwt)", f"map_str({run}/{jwks.MAP})"
    return f"""\
    acl short http_auth_bearer -m len 1:{_LONGEST_TOKEN}
    http-request set-var(txn.jwt) http_auth_bearer if !{{ var(txn.key) -m found }} short
    acl token {value},jwt_header_query('$.alg') -m found
    http-request set-var(txn.kid) {value},jwt_header_query('$.kid'),sha2(256),hex if token
    http-request set-var(txn.jwk) var(txn.kid),{key} if token
    http-request set-var(txn.jwk) str(-),{key} if token !{{ var(txn.kid) -m found }}
    acl signer var(txn.jwk) -m found
    http-request set-var(txn.algorithm) var(txn.jwk),field(1,:) if signer
    http-request set-var(txn.certificate) var(txn.jwk),field(2,:,0) if signer
    acl same_algorithm {value},jwt_header_query('$.alg'),strcmp(txn.algorithm) eq 0
    acl extended {value},jwt_header_query('$.crit') -m found
    acl signed {value},jwt_verify_cert(txn.algorithm,txn.certificate) -m int 1
    http-request set-var(txn.verified) bool(true) if signer same_algorithm !extended signed
    acl verified var(txn.verified) -m found
    acl keys_known str({KEYS_KNOWN}),map_str({run}/state.map) -m found
    http-request {errors.return_rule(errors.UNKNOWN_SIGNER)} if token !verified !keys_known
    http-request {errors.return_rule(errors.BAD_SIGNATURE)} if token !verified"""


def _claim_rules(jwt: Jwt) -> str:
    """Return the rules that check the claims of a token, and set ``txn.subject``."""
    value = "var(txn.jwt)"
    audiences = "\n".join(
        f"    acl for_us {value},jwt_payload_query('$.aud{place}') -m str -- '{jwt.audience}'"
        for place in ("", *(f"[{number}]" for number in range(_AUDIENCES)))
    )
    return f"""\
    acl issued {value},jwt_payload_query('$.iss') -m str -- '{jwt.issuer}'
{audiences}
    http-request {errors.return_rule(errors.WRONG_TOKEN)} if verified !issued || verified !for_us
    http-request set-var(txn.now) date if verified
    http-request set-var(txn.left) {value},jwt_payload_query('$.exp','int'),sub(txn.now),add({_LEEWAY}) if verified
    http-request {errors.return_rule(errors.EXPIRED_TOKEN)} if verified !{{ var(txn.left) -m int gt 0 }}
    http-request set-var(txn.early) {value},jwt_payload_query('$.nbf','int'),sub(txn.now) if verified
    http-request {errors.return_rule(errors.EARLY_TOKEN)} if verified {{ var(txn.early) -m int gt {_LEEWAY} }}
    http-request set-var(txn.claim) {value},jwt_payload_query('$.{jwt.claim}','int') if verified
    http-request set-var(txn.subject) lua.subject if verified
    http-request {errors.return_rule(errors.NO_SUBJECT)} if verified !{{ var(txn.subject) -m reg '^{SUBJECT}\\z' }}"""
