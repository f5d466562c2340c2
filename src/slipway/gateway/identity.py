"""Who asks, where no API key says so: rules of haproxy.cfg that verify the tokens of an issuer (JWT), and those of
service accounts. Pure.

HAProxy verifies each token by itself, with the keys that jwks.py made of the issuer's. Whose token it is, one of its
claims says: ``jwt:OWNER`` is then to all other rules what an API key's name is to them. What he may is written beside
the rights of keys (keys.py): by his own record, else by the one for all, ``jwt:*``. Without any he is refused.

Tokens of service accounts are verified in the same way, with the keys by which the API server signs them. Whether one
is still valid, as its pod or account may be gone, the API server is asked besides (review.lua, reviews.py): so it hears
of tokens alone that it has signed itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from slipway.gateway import errors, jwks
from slipway.gateway.keys import ACCOUNT, JWT, OWNER, SERVICE_ACCOUNT, Rights, common, is_identity
from slipway.gateway.settings import Jwt, Settings

RECORDS_MAP, ACCOUNTS_MAP = "records.map", "accounts.map"
REVIEW_SOCKET = "review.sock"
"""At which review.lua asks the control process whether a token is still valid."""
_GRANTED, _REFUSED = "1", "0"
_LONGEST = 8192
"""Characters of a token."""
_LEEWAY = 30
"""Seconds by which clocks may differ."""
_AUDIENCES = 8
"""So many of a token's are looked at."""


def record(settings: Settings) -> str:
    """The variable with the name under which the rights of whoever asks are written."""
    return "txn.record" if settings.tokens else "txn.key"


def maps(
    settings: Settings,
    rights: Mapping[str, Rights],
    refused: Collection[str],
    keys: Collection[jwks.VerificationKey],
    account_keys: Collection[jwks.VerificationKey] = (),
) -> dict[str, dict[str, str]]:
    """The records there are of identities, and whether they let anybody in; the keys of the issuer, and those that
    sign tokens of service accounts."""
    if not settings.tokens:
        return {}
    granted = {name: _GRANTED for name in rights if is_identity(name)}
    found = {RECORDS_MAP: granted | dict.fromkeys(refused, _REFUSED)}
    if settings.jwt:
        found[jwks.MAP] = jwks.map_of(settings.run_directory, keys)
    if settings.service_account_audience:
        found[ACCOUNTS_MAP] = jwks.map_of(settings.run_directory, account_keys)
    return found


def scripts(settings: Settings) -> str:
    """Of the section ``global``: what asks whether tokens of service accounts are still valid."""
    run = settings.run_directory
    text = f"    lua-load-per-thread {run}/lua/review.lua {run}/{REVIEW_SOCKET}\n"
    return text if settings.service_account_audience else ""


def rules(settings: Settings) -> str:
    """Rules that name whoever has no API key but a token, or refuse him; empty where no tokens are let in."""
    if not settings.tokens:
        return ""
    run = settings.run_directory
    issued = f"{_verified(settings.jwt, run)}\n" if settings.jwt else ""
    accounts = f"{_account(settings.service_account_audience, run)}\n" if settings.service_account_audience else ""
    granted = f"var(txn.record),{_records(settings)} -m str {_GRANTED}"
    return f"""\
{issued}{accounts}{name_record(settings)}\
    http-request {errors.return_rule(errors.NO_RIGHTS)} if identity !{{ {granted} }}
{_reviewed() if settings.service_account_audience else ""}"""


def name_record(settings: Settings) -> str:
    """Rules that set ``record`` by ``txn.key``; empty where no tokens are let in, as keys have records of their own."""
    if not settings.tokens:
        return ""
    let_in = {JWT: bool(settings.jwt), SERVICE_ACCOUNT: bool(settings.service_account_audience)}
    kinds = [kind for kind, yes in let_in.items() if yes]
    unnamed = f"!{{ var(txn.key),{_records(settings)} -m found }}"
    of_all = "".join(
        f"    http-request set-var(txn.record) str({common(kind)}) if {{ var(txn.key) -m beg {kind} }} {unnamed}\n"
        for kind in kinds
    )
    return f"""\
    http-request set-var(txn.record) var(txn.key)
    acl identity var(txn.key) -m beg {" ".join(kinds)}
{of_all}"""


def _records(settings: Settings) -> str:
    return f"map_str({settings.run_directory}/{RECORDS_MAP})"


def _verified(jwt: Jwt, run: str) -> str:
    """Sets ``txn.key`` for a token that is valid."""
    return f"""\
{_signed("", jwks.MAP, jwt.audience, run)}
    acl issued var(txn.jwt),jwt_payload_query('$.iss') -m str -- '{jwt.issuer}'
    http-request set-var(txn.owner) var(txn.jwt),jwt_payload_query('$.{jwt.owner_claim}')\
 if signer same_algorithm !beyond_us lives !too_early issued for_us signed
    acl owner var(txn.owner) -m reg '^{OWNER}\\z'
    http-request set-var(txn.key) str({JWT}),concat(,txn.owner) if owner"""


def _account(audience: str, run: str) -> str:
    """Sets ``txn.key`` for a token of a service account that HAProxy has verified.

    What its issuer is called is not looked at: a cluster may have several names, and its keys sign for nobody else.
    """
    name = "sa_"
    valid = f"{name}signer {name}same_algorithm !{name}beyond_us {name}lives !{name}too_early {name}for_us {name}signed"
    return f"""\
{_signed(name, ACCOUNTS_MAP, audience, run)}
    http-request set-var(txn.account) var(txn.jwt),jwt_payload_query('$.sub') if !{{ var(txn.key) -m found }} {valid}
    acl account var(txn.account) -m reg '^system:{SERVICE_ACCOUNT}{ACCOUNT}\\z'
    http-request set-var(txn.key) var(txn.account),regsub(^system:,) if account"""


def _reviewed() -> str:
    """Takes ``txn.key`` from a service account whose token is no longer valid. Only those who have rights are asked
    about."""
    return """\
    http-request set-var(txn.digest) var(txn.jwt),sha2(256),hex if account
    http-request lua.review if account
    http-request unset-var(txn.key) if account !{ var(txn.reviewed) -m bool }
"""


def _signed(name: str, keys: str, audience: str, run: str) -> str:
    """Conditions that together say that a token is signed by one of the keys of a map, for an audience and this time.
    What costs least is looked at first, the signature last. `name`: what names of these conditions begin with."""
    token, key, var = "var(txn.jwt)", f"map_str({run}/{keys})", f"txn.{name}"
    seconds = f"sub({var}now)"
    audiences = "\n".join(
        f"    acl {name}for_us {token},jwt_payload_query('$.aud{place}') -m str -- '{audience}'"
        for place in ("", *(f"[{number}]" for number in range(_AUDIENCES)))
    )
    return f"""\
    http-request set-var(txn.jwt) http_auth_bearer unless {{ var(txn.key) -m found }}
    acl {name}token var(txn.jwt) -m len 1:{_LONGEST}
    http-request set-var({var}kid) {token},jwt_header_query('$.kid'),sha2(256),hex if {name}token
    http-request set-var({var}jwk) var({var}kid),{key} if {name}token
    http-request set-var({var}jwk) str(-),{key} if {name}token !{{ var({var}kid) -m found }}
    acl {name}signer var({var}jwk) -m found
    # The algorithm is the key's, whatever a token says of itself.
    http-request set-var({var}algorithm) var({var}jwk),field(1,:) if {name}signer
    http-request set-var({var}certificate) var({var}jwk),field(2,:,0) if {name}signer
    acl {name}same_algorithm {token},jwt_header_query('$.alg'),strcmp({var}algorithm) eq 0
    acl {name}beyond_us {token},jwt_header_query('$.crit') -m found
    http-request set-var({var}now) date if {name}signer
    http-request set-var({var}lives) {token},jwt_payload_query('$.exp','int'),{seconds},add({_LEEWAY})\
 if {name}signer
    http-request set-var({var}begins) {token},jwt_payload_query('$.nbf','int'),{seconds} if {name}signer
    acl {name}lives var({var}lives) -m int gt 0
    acl {name}too_early var({var}begins) -m int gt {_LEEWAY}
{audiences}
    acl {name}signed {token},jwt_verify_cert({var}algorithm,{var}certificate) -m int 1"""
