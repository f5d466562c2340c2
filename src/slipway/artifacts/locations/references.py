"""References to images and artifacts in an OCI registry: ``HOST[:PORT]/REPOSITORY[:TAG][@DIGEST]``. Pure."""

from __future__ import annotations

import re

import msgspec

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?")
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
LONGEST = 255
"""Maximum length of a repository's name in characters."""


class Reference(msgspec.Struct, frozen=True):
    """The parts of a reference. A missing tag or digest is empty."""

    host: str
    """``HOST`` or ``HOST:PORT``."""
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def version(self) -> str:
        """Digest of the manifest, or its tag if there is no digest; empty if the reference names only a repository."""
        return self.digest or self.tag

    def __str__(self) -> str:
        tag, digest = self.tag and f":{self.tag}", self.digest and f"@{self.digest}"
        return f"{self.host}/{self.repository}{tag}{digest}"


def parse(text: str) -> Reference:
    """Parse a reference, which must begin with the registry's host. Raise ValueError if it is invalid."""
    rest, at, digest = text.partition("@")
    host, slash, path = rest.partition("/")
    repository, colon, tag = path.partition(":")
    if not slash or not _HOST.fullmatch(host):
        raise ValueError(f"{text!r} does not begin with the address of a registry")
    if not _REPOSITORY.fullmatch(repository) or len(repository) > LONGEST:
        raise ValueError(f"{text!r} does not name a repository")
    if (colon and not _TAG.fullmatch(tag)) or (at and not DIGEST.fullmatch(digest)):
        raise ValueError(f"{text!r} does not end with a tag or a digest")
    return Reference(host, repository, tag, digest)
