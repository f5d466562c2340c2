"""Rules that accept tokens (JWT) of an issuer instead of API keys. Pure.

HAProxy itself verifies each token with the issuer's public keys (jwks.py). A claim contains the subject. The rules set
two variables. ``txn.holder`` is ``jwt:SUBJECT``; limits count each holder separately. ``txn.key`` is the name of the
rights, which is the subject's own or ``jwt:*``. All other rules use it like the name of an API key.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from slipway.gateway import errors
from slipway.gateway.routing.keys import ANY_SUBJECT, JWT, REFUSED, SUBJECT, Rights
from slipway.gateway.rules import jwks
from slipway.gateway.settings import Jwt, Settings

SUBJECTS_MAP = "subjects.map"
KEYS_KNOWN = "jwt"
"""Entry of state.map if the gateway has public keys."""
_ACCEPTED, _REFUSED = "1", "0"
_LONGEST_TOKEN = 8192
"""Maximum length of a token in characters."""
_LEEWAY = 30
"""Allowed difference between clocks in seconds."""
_AUDIENCES = 8
"""Number of entries in a token's list of audiences that are compared."""


def holder_variable(settings: Settings) -> str:
    """Returns the HAProxy variable that contains the name of the limits' holder."""
    return "txn.holder" if settings.jwt else "txn.key"


def maps(
    settings: Settings, rights: Mapping[str, Rights], keys: Collection[jwks.VerificationKey]
) -> dict[str, dict[str, str]]:
    """Returns the maps of subjects with a separate entry, and of the issuer's keys."""
    if not settings.jwt:
        return {}
    subjects = {name: _REFUSED if own == REFUSED else _ACCEPTED for name, own in rights.items() if name.startswith(JWT)}
    return {SUBJECTS_MAP: subjects, jwks.MAP: jwks.map_entries(settings.run_directory, keys)}


def certificates(settings: Settings, keys: Collection[jwks.VerificationKey]) -> tuple[str, ...]:
    """Returns the section with the keys that HAProxy loads at startup."""
    lines = [f"    load crt {settings.run_directory}/{key.file} jwt on\n" for key in keys]
    return ("crt-store\n" + "".join(lines),) if lines else ()


def global_lines(settings: Settings) -> str:
    """Returns the lines for the section ``global``."""
    return f"    lua-load-per-thread {settings.run_directory}/lua/claims.lua\n" if settings.jwt else ""


def rules(settings: Settings) -> str:
    """Returns the rules that identify a client without an API key by its token, or reject the token."""
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
    """Returns the rules that verify the signature.

    The key determines the algorithm, whatever the token contains. Tokens with critical extensions (``crit``) are
    rejected.
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
    """Returns the rules that check the claims and set ``txn.subject``."""
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
