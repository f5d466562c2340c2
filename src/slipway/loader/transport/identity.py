"""The AWS credentials of a pod: from keys in its environment, a service account's role, a pod identity, or the
machine's role.

The S3 library obtains the credentials. This module decides which kinds the library may try, and explains failures.
Public buckets are read without credentials.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from xml.etree import ElementTree as ET

from minio.credentials.credentials import Credentials
from minio.credentials.providers import IamAwsProvider, Provider, StaticProvider

from slipway.artifacts.locations.address_policy import METADATA
from slipway.loader.transport import http
from slipway.loader.transport.errors import LoadError, TransientError
from slipway.loader.transport.pool import HttpStatusError, Pool
from slipway.loader.transport.source import Access

TOKEN, ROLE = "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"
POD = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
QUICK = (1.0, 1.0)
"""Timeouts in seconds, to connect and to read, for the machine's metadata service, which is either fast or missing."""
AGENTS = ("169.254.170.23", "fd00:ec2::23", "169.254.170.2", "127.0.0.0/8", "::1")
"""Addresses of AWS agents that authenticate a pod by its own token. They are not the machine's metadata service."""
NO_IDENTITY_HINT = (
    "use a Secret with keys, or a service account with its own role, or ask the operator to allow the"
    " node's identity (sources.nodeIdentity)"
)
Failure = Callable[[Exception], Exception]


class Identity(Provider):
    """A provider of credentials that renews them automatically. Several threads can use it. It replaces the library's
    errors, whose messages contain URLs with tokens."""

    def __init__(self, provider: Provider, failure: Failure) -> None:
        self._provider, self._failure = provider, failure
        self._lock = threading.Lock()

    def retrieve(self) -> Credentials:
        """Return valid credentials. If the library fails, raise the error that ``failure`` returns."""
        with self._lock:
            try:
                return self._provider.retrieve()
            except (HttpStatusError, AttributeError, KeyError, TypeError, ValueError, OSError, ET.ParseError) as error:
                raise self._failure(error) from None


def find(env: Mapping[str, str], region: str, access: Access) -> Provider | None:
    """Return the provider of the credentials that the environment selects, in the order of the AWS SDKs, or None if
    there are none.

    The machine's role belongs to the node, not to the pod, and is tried only if ``access`` allows it. Raise LoadError
    or TransientError.
    """
    key, secret = env.get("AWS_ACCESS_KEY_ID", ""), env.get("AWS_SECRET_ACCESS_KEY", "")
    if key or secret:
        if not (key and secret):
            raise LoadError("only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set: check the Secret")
        return StaticProvider(key, secret, env.get("AWS_SESSION_TOKEN") or None)
    if env.get(TOKEN) and env.get(ROLE):
        sts = env.get("AWS_ENDPOINT_URL_STS") or None
        session = http.session(env, address_policy=access.of(chosen=bool(sts)), stays=True)
        role = IamAwsProvider(
            custom_endpoint=sts, http_client=Pool(session), role_session_name="slipway-loader", region=region
        )
        return _tried(Identity(role, lambda error: _no_role(env, error)))
    if any(env.get(name) for name in POD):
        session = http.session(env, address_policy=access.of(chosen=True, allowed=AGENTS), stays=True)
        return _tried(
            Identity(IamAwsProvider(http_client=Pool(session)), lambda _error: _none("the pod's identity agent"))
        )
    if not access.node_identity or env.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return None
    own = env.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or None
    session = http.session(env, address_policy=access.of(chosen=bool(own), allowed=METADATA), stays=True)
    machine = IamAwsProvider(custom_endpoint=own, http_client=Pool(session, timeout=QUICK))
    with suppress(LoadError, TransientError):
        return _tried(Identity(machine, lambda _error: _none("the machine's identity service")))
    return None


def _tried(identity: Identity) -> Identity:
    identity.retrieve()
    return identity


def _no_role(env: Mapping[str, str], error: Exception) -> LoadError:
    if isinstance(error.__cause__, OSError):
        reason = error.__cause__.strerror
        return LoadError(f"cannot read the token {env[TOKEN]}: {reason}: check the service account")
    return LoadError(f"AWS does not let this service account assume the role {env[ROLE]}: check its trust policy")


def _none(who: str) -> TransientError:
    return TransientError(f"{who} returned no credentials")
