"""As whom a pod asks AWS: keys in its environment, a service account's role, a pod identity, or the machine's role.

The order is that of AWS's own libraries. A public bucket is read by nobody in particular.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

import requests

from slipway.loader.errors import LoadError, PassingError
from slipway.loader.sources import http
from slipway.loader.sources.signature import Credentials

MACHINE = "http://169.254.169.254"
CONTAINER = "http://169.254.170.2"
SPARE = timedelta(minutes=5)
"""Before they end, credentials are renewed."""
QUICK = 1.0
"""Seconds: the machine's own service is near, or there is none."""
Lookup = Callable[[], Credentials | None]


class Identity:
    """Credentials, looked up when they are first needed and again before they end. Safe for threads."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._lock = threading.Lock()
        self._known = False
        self._found: Credentials | None = None

    def __call__(self) -> Credentials | None:
        with self._lock:
            expires = self._found.expires if self._found else None
            if not self._known or (expires is not None and datetime.now(UTC) > expires - SPARE):
                self._found, self._known = self._lookup(), True
            return self._found


def lookup(env: Mapping[str, str], region: str) -> Lookup:
    """How the environment says to find credentials. What it returns raises LoadError or PassingError."""
    key, secret = env.get("AWS_ACCESS_KEY_ID", ""), env.get("AWS_SECRET_ACCESS_KEY", "")
    if key or secret:
        if not (key and secret):
            raise LoadError("only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set: check the Secret")
        fixed = Credentials(key, secret, env.get("AWS_SESSION_TOKEN", ""))
        return lambda: fixed
    if env.get("AWS_WEB_IDENTITY_TOKEN_FILE") and env.get("AWS_ROLE_ARN"):
        return lambda: _role(env, region)
    if env.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") or env.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        return lambda: _container(env)
    if env.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return lambda: None
    return _machine


def _role(env: Mapping[str, str], region: str) -> Credentials:
    """Exchanges the service account's token for credentials of its role."""
    endpoint = env.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{region}.amazonaws.com"
    form = {
        "Action": "AssumeRoleWithWebIdentity",
        "Version": "2011-06-15",
        "RoleArn": env["AWS_ROLE_ARN"],
        "RoleSessionName": env.get("AWS_ROLE_SESSION_NAME") or "slipway-loader",
        "WebIdentityToken": _text(env["AWS_WEB_IDENTITY_TOKEN_FILE"]),
    }
    body = urlencode(form)
    with http.session(env) as client:
        client.headers["Content-Type"] = "application/x-www-form-urlencoded"
        answer = _ask("the role's credentials", lambda: client.post(endpoint, data=body, timeout=http.TIMEOUT))
    if not answer.ok:
        raise LoadError(
            f"AWS does not give the role {env['AWS_ROLE_ARN']} to this service account: check its trust policy"
        )
    try:
        found = {element.tag.rpartition("}")[2]: element.text or "" for element in ET.fromstring(answer.content).iter()}  # noqa: S314 - expat of today refuses what is dangerous
        return Credentials(
            found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"], _time(found["Expiration"])
        )
    except (ET.ParseError, KeyError, ValueError) as error:
        raise PassingError("AWS gives no credentials for the role") from error


def _container(env: Mapping[str, str]) -> Credentials:
    """Credentials of a pod identity, by the agent on its machine."""
    relative = env.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
    address = f"{CONTAINER}{relative}" if relative else env["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
    file = env.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
    token = _text(file) if file else env.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "")
    headers = {"Authorization": token} if token else {}
    answer = _ask("the pod's credentials", lambda: requests.get(address, headers=headers, timeout=http.TIMEOUT))
    if not answer.ok:
        raise PassingError(f"the pod's identity agent answers {answer.status_code}")
    return _of_document(answer)


def _machine() -> Credentials | None:
    """Credentials of the machine's role; None where there is no such service, or no role."""
    top = f"{MACHINE}/latest"
    try:
        age = {"X-aws-ec2-metadata-token-ttl-seconds": "21600"}
        token = requests.put(f"{top}/api/token", headers=age, timeout=QUICK)
        if not token.ok:
            return None
        headers, roles = {"X-aws-ec2-metadata-token": token.text}, f"{top}/meta-data/iam/security-credentials/"
        names = requests.get(roles, headers=headers, timeout=QUICK)
        name = names.text.strip() if names.ok else ""
        return _of_document(requests.get(roles + name, headers=headers, timeout=QUICK)) if name else None
    except requests.exceptions.RequestException:
        return None


def _of_document(answer: requests.Response) -> Credentials:
    try:
        found = answer.json()
        return Credentials(found["AccessKeyId"], found["SecretAccessKey"], found["Token"], _time(found["Expiration"]))
    except (requests.exceptions.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise PassingError("the machine's identity service gives no credentials") from error


def _ask(what: str, request: Callable[[], requests.Response]) -> requests.Response:
    try:
        answer = request()
    except requests.exceptions.RequestException as error:
        raise PassingError(f"{what} cannot be asked for") from error
    if answer.status_code >= 500 or answer.status_code == 429:
        raise PassingError(f"{what}: AWS answers {answer.status_code}")
    return answer


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise LoadError(f"the token {path} cannot be read: {error.strerror}: check the service account") from error


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
