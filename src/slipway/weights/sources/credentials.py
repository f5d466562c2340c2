"""Credentials: the environment variables, volumes, mounts and pull secrets with which a container can read a source.
Pure.

Users' credentials are in Secrets of the resource's namespace, which the controller never reads. Unless a key is
required, a missing Secret is not an error, because public sources need no credentials.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from slipway.artifacts.locations import huggingface
from slipway.kube.objects import Object
from slipway.serving.containers import volumes
from slipway.serving.containers.env import without
from slipway.serving.contract.settings import Loader
from slipway.serving.pods.server import Mount, variables

S3_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
OSS_KEYS = ("OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET")
CA_VARIABLES = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "AWS_CA_BUNDLE")
"""Environment variables with the path of trusted CA certificates, for the HTTP clients of all sources."""
CA_KEY, CA_FOLDER, CA_VOLUME = "ca.crt", "/etc/slipway/ca", "certificate-authorities"
GOOGLE_VARIABLE, GOOGLE_FILE = "GOOGLE_APPLICATION_CREDENTIALS", "credentials.json"
GOOGLE_FOLDER, GOOGLE_VOLUME = "/secrets/gcp-credentials", "gcp-credentials"


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Additions to a container and its pod that give access to a source or a volume."""

    env: tuple[Object, ...] = ()
    volumes: tuple[Object, ...] = ()
    mounts: tuple[Mount, ...] = ()
    image_pull_secrets: tuple[str, ...] = ()

    def __add__(self, other: Access) -> Access:
        """Return the additions of both. If both set an environment variable, the value of ``other`` wins."""
        return Access(
            env=(*without(self.env, other.env), *other.env),
            volumes=self.volumes + other.volumes,
            mounts=self.mounts + other.mounts,
            image_pull_secrets=self.image_pull_secrets + other.image_pull_secrets,
        )


def mounted(volume: Object, path: str, *, sub_path: str = "", read_only: bool = False) -> Access:
    """Return the access to a volume of the pod, or to ``sub_path`` in the volume, at the container's path ``path``."""
    return Access(volumes=(volume,), mounts=(Mount(volume["name"], path, sub_path=sub_path, read_only=read_only),))


def from_secret(name: str, keys: Mapping[str, str], needed: Collection[str] = ()) -> tuple[Object, ...]:
    """Return environment variables, in a container's format, with values from a Secret; empty if ``name`` is empty.
    ``keys`` maps environment variables to keys of the Secret. The pod does not start without the environment variables
    in ``needed``; the others are optional."""
    if not name:
        return ()
    sources = {
        variable: {"name": name, "key": key} | ({} if variable in needed else {"optional": True})
        for variable, key in keys.items()
    }
    return tuple({"name": variable, "valueFrom": {"secretKeyRef": source}} for variable, source in sources.items())


def from_google(secret: str, key: str) -> Access:
    """Return the access to the key file of a Google service account, which is the value of ``key`` in the Secret
    ``secret``; empty if ``secret`` is empty."""
    if not secret:
        return Access()
    file = mounted(volumes.secret(GOOGLE_VOLUME, secret, {key: GOOGLE_FILE}), GOOGLE_FOLDER, read_only=True)
    return Access(env=variables({GOOGLE_VARIABLE: f"{GOOGLE_FOLDER}/{GOOGLE_FILE}"})) + file


def of_operator(loader: Loader) -> Access:
    """Return the operator's additions to every loader that reads a source: environment variables and CA
    certificates."""
    own = Access(env=variables(loader.env))
    if not loader.ca_config_map:
        return own
    trusted = volumes.key_of_config_map(CA_VOLUME, loader.ca_config_map, CA_KEY)
    named = variables(dict.fromkeys(CA_VARIABLES, f"{CA_FOLDER}/{CA_KEY}"))
    return mounted(trusted, CA_FOLDER, read_only=True) + Access(env=named) + own


def hub_mirror(endpoint: str) -> tuple[Object, ...]:
    """Return the environment variable for a mirror of the Hugging Face Hub; empty if ``endpoint`` is empty."""
    return variables(huggingface.environment(endpoint))


def renamed_token(env: Sequence[Object], env_from: Sequence[Object]) -> tuple[Object, ...]:
    """Return the current environment variable for a Hub token that the user set under its old name; empty if the
    current variable is set or there is no token.

    A token from ``envFrom`` is read from the only Secret in it, as an optional key. With several Secrets, the one with
    the token is unknown, and a variable has only one source.
    """
    variables, old = {variable["name"]: variable for variable in env}, huggingface.OLD_TOKEN
    if huggingface.TOKEN in variables:
        return ()
    if old in variables:
        return ({**variables[old], "name": huggingface.TOKEN},)
    sources = [source for source in env_from if "secretRef" in source and old.startswith(source.get("prefix", ""))]
    if len(sources) != 1:
        return ()
    key = old.removeprefix(sources[0].get("prefix", ""))
    return from_secret(sources[0]["secretRef"]["name"], {huggingface.TOKEN: key})
