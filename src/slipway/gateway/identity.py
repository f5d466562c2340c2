"""Who asks, where no API key says so: rules of haproxy.cfg that verify the tokens of an issuer (JWT). Pure.

HAProxy verifies each token by itself, with the keys that jwks.py made of the issuer's. Whose token it is, one of its
claims says: ``jwt:OWNER`` is then to all other rules what an API key's name is to them. What he may is written beside
the rights of keys (keys.py): by his own record, else by the one for all, ``jwt:*``. Without any he is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from slipway.gateway import errors, jwks
from slipway.gateway.keys import ALL, JWT, OWNER, Rights, is_identity
from slipway.gateway.settings import Jwt, Settings

RECORDS_MAP = "records.map"
_GRANTED, _REFUSED = "1", "0"
_LONGEST = 8192
"""Characters of a token."""
_LEEWAY = 30
"""Seconds by which clocks may differ."""
_AUDIENCES = 8
"""So many of a token's are looked at."""


def record(settings: Settings) -> str:
    """The variable with the name under which the rights of whoever asks are written."""
    return "txn.record" if settings.jwt else "txn.key"


def maps(
    settings: Settings, rights: Mapping[str, Rights], refused: Collection[str], keys: Collection[jwks.VerificationKey]
) -> dict[str, dict[str, str]]:
    """The records there are of identities, and whether they let anybody in; and the issuer's keys."""
    if not settings.jwt:
        return {}
    granted = {name: _GRANTED for name in rights if is_identity(name)}
    return {
        RECORDS_MAP: granted | dict.fromkeys(refused, _REFUSED),
        jwks.MAP: jwks.map_of(settings.run_directory, keys),
    }


def rules(settings: Settings) -> str:
    """Rules that name whoever has no API key but a token, or refuse him; empty where no tokens are let in."""
    if not settings.jwt:
        return ""
    granted = f"var(txn.record),{_records(settings)} -m str {_GRANTED}"
    return f"""\
{_verified(settings.jwt, settings.run_directory)}
{name_record(settings)}\
    http-request {errors.return_rule(errors.NO_RIGHTS)} if identity !{{ {granted} }}
"""


def name_record(settings: Settings) -> str:
    """Rules that set ``record`` by ``txn.key``; empty where no tokens are let in, as keys have records of their own."""
    if not settings.jwt:
        return ""
    return f"""\
    http-request set-var(txn.record) var(txn.key)
    acl identity var(txn.key) -m beg {JWT}
    http-request set-var(txn.record) str({ALL}) if identity !{{ var(txn.key),{_records(settings)} -m found }}
"""


def _records(settings: Settings) -> str:
    return f"map_str({settings.run_directory}/{RECORDS_MAP})"


def _verified(jwt: Jwt, run: str) -> str:
    """Sets ``txn.key`` for a token that is valid. What costs least is looked at first, the signature last."""
    token, key = "var(txn.jwt)", f"map_str({run}/{jwks.MAP})"
    audiences = "\n".join(
        f"    acl for_us {token},jwt_payload_query('$.aud{place}') -m str -- '{jwt.audience}'"
        for place in ("", *(f"[{number}]" for number in range(_AUDIENCES)))
    )
    return f"""\
    http-request set-var(txn.jwt) http_auth_bearer unless {{ var(txn.key) -m found }}
    acl token var(txn.jwt) -m len 1:{_LONGEST}
    http-request set-var(txn.kid) {token},jwt_header_query('$.kid'),sha2(256),hex if token
    http-request set-var(txn.jwk) var(txn.kid),{key} if token
    http-request set-var(txn.jwk) str(-),{key} if token !{{ var(txn.kid) -m found }}
    acl signer var(txn.jwk) -m found
    # The algorithm is the key's, whatever a token says of itself.
    http-request set-var(txn.algorithm) var(txn.jwk),field(1,:) if signer
    http-request set-var(txn.certificate) var(txn.jwk),field(2,:,0) if signer
    acl same_algorithm {token},jwt_header_query('$.alg'),strcmp(txn.algorithm) eq 0
    acl beyond_us {token},jwt_header_query('$.crit') -m found
    http-request set-var(txn.now) date if signer
    http-request set-var(txn.lives) {token},jwt_payload_query('$.exp','int'),sub(txn.now),add({_LEEWAY}) if signer
    http-request set-var(txn.begins) {token},jwt_payload_query('$.nbf','int'),sub(txn.now) if signer
    acl lives var(txn.lives) -m int gt 0
    acl too_early var(txn.begins) -m int gt {_LEEWAY}
    acl issued {token},jwt_payload_query('$.iss') -m str -- '{jwt.issuer}'
{audiences}
    acl signed {token},jwt_verify_cert(txn.algorithm,txn.certificate) -m int 1
    http-request set-var(txn.owner) {token},jwt_payload_query('$.{jwt.owner_claim}')\
 if signer same_algorithm !beyond_us lives !too_early issued for_us signed
    acl owner var(txn.owner) -m reg '^{OWNER}\\z'
    http-request set-var(txn.key) str({JWT}),concat(,txn.owner) if owner"""
