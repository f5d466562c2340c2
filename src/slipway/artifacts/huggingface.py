"""The Hugging Face hub as a source: how a process in a pod is pointed at it, and what its refusals mean. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from slipway.kube.objects import Object

TOKEN = "HF_TOKEN"  # noqa: S105 - the variable's name
"""The variable that llama.cpp and today's clients of the hub read."""
OLD_TOKEN = "HUGGINGFACE_HUB_TOKEN"  # noqa: S105 - the variable's name
"""The variable that the Krypton documents name; llama.cpp does not read it."""
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class HuggingFaceFile(msgspec.Struct, frozen=True):
    """One file of a model repository at its default branch."""

    repository: str
    """``owner/name``."""
    file: str
    """Path inside the repository."""

    def __str__(self) -> str:
        return f"hf:{self.repository}/{self.file}"

    def fault(self) -> str | None:
        """What is wrong with this name, or None. Caught here, as engines report it only after minutes or not at all."""
        if not REPOSITORY.fullmatch(self.repository):
            return (
                f"source.huggingface {self.repository!r} is not a repository id such as Qwen/Qwen2.5-0.5B-Instruct-GGUF"
            )
        if self.file.startswith("/") or ".." in self.file.split("/"):
            return f"source.file {self.file!r} is not a path inside the repository"
        return None


def environment(endpoint: str, home: str = "") -> dict[str, str]:
    """Variables that place the hub's cache below ``home`` and, where ``endpoint`` is set, take a mirror for the hub."""
    place = {"HOME": home, "HF_HOME": f"{home}/huggingface"} if home else {}
    return {**place, "HF_ENDPOINT": endpoint} if endpoint else place


def token(env: Sequence[Object], env_from: Sequence[Object]) -> tuple[Object, ...]:
    """Hands a token that the user gave as HUGGINGFACE_HUB_TOKEN on as HF_TOKEN; nothing where HF_TOKEN is given.

    From ``envFrom`` as an optional key of its one Secret; with several it cannot be known which one has it, and a name
    can be set only once.
    """
    variables = {variable["name"]: variable for variable in env}
    if TOKEN in variables:
        return ()
    if OLD_TOKEN in variables:
        return ({**variables[OLD_TOKEN], "name": TOKEN},)
    sources = [
        source for source in env_from if "secretRef" in source and OLD_TOKEN.startswith(source.get("prefix", ""))
    ]
    if len(sources) != 1:
        return ()
    name, key = sources[0]["secretRef"]["name"], OLD_TOKEN.removeprefix(sources[0].get("prefix", ""))
    return ({"name": TOKEN, "valueFrom": {"secretKeyRef": {"name": name, "key": key, "optional": True}}},)


REFUSALS = (
    (401, "the hub asks for a token, as it does for names that it does not have: give the model one as HF_TOKEN"),
    (403, "the token may not read this repository: accept its terms on the hub, or use a token of an account that has"),
    (404, "the hub has no such repository or file: check their names in the spec"),
    (429, "the hub refuses more requests for now; the pod tries again by itself"),
)
"""HTTP status -> what a person can do about it."""


def passes(status: int) -> bool:
    """Whether the hub may well answer otherwise in a moment."""
    return status == 429 or status >= 500


def explain_status(status: int) -> str:
    if status >= 500:
        return "the hub is not well; the pod tries again by itself"
    return next((text for code, text in REFUSALS if code == status), "the hub refused the download")
