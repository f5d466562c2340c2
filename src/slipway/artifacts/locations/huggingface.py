"""The Hugging Face Hub as a source: references to it, environment variables for it, and its error codes. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import msgspec

from slipway.artifacts.locations.paths import fault_inside

TOKEN = "HF_TOKEN"  # noqa: S105 - the variable's name
"""Environment variable from which llama.cpp and current clients of the Hub read the token."""
OLD_TOKEN = "HUGGINGFACE_HUB_TOKEN"  # noqa: S105 - the variable's name
"""Environment variable from which older clients of the Hub read the token. llama.cpp does not read it."""
SECRET_KEYS = ("token", TOKEN, "HUGGING_FACE_HUB_TOKEN")
"""Keys under which a Secret may contain the token. The first key with a token counts."""
CANDIDATE = "SLIPWAY_HUB_TOKEN_"
"""Prefix of the loader's environment variables that hold the values of :data:`SECRET_KEYS`, followed by the key's
index. There is one per key, because a variable has only one source and no fallback."""
REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*")
REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,254}")
SOME_REPOSITORY = "a repository such as Qwen/Qwen2.5-0.5B-Instruct-GGUF"
HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")
OTHER_HOSTS = re.compile(
    r"(?:.+\.)?(?:docker\.(?:io|com)|ghcr\.io|quay\.io|gcr\.io|nvcr\.io|github\.com|gitlab\.com|modelscope\.(?:cn|ai)"
    r"|ollama\.(?:ai|com)|amazonaws\.com|ecr\.aws|googleapis\.com|pkg\.dev|azurecr\.io|mcr\.microsoft\.com|k8s\.io"
    r"|hf-mirror\.com)|localhost:[0-9]{1,5}",
    re.IGNORECASE | re.ASCII,
)
"""Hosts of images, code and other models. None of them is a valid owner on the Hub, except ``localhost``, which
therefore must have a port."""
NOT_MODELS = ("datasets", "spaces", "api", "docs", "models", "blog", "papers", "collections", "settings", "join")
"""First path components of the Hub's URLs that are not owners of models."""
FILE_PAGES = ("resolve", "blob", "raw")


NAME_PART = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
OTHER_WORDS = re.compile(
    rf"(?:hf:(?://)?)?(?:https?://)?(?:(?:{'|'.join(map(re.escape, HOSTS))})(?::443)?/)?"
    rf"(?P<repository>{NAME_PART}/{NAME_PART})(?::(?P<quantization>[\w.-]{{1,64}}))?(?:[/?#@].*)?",
    re.IGNORECASE | re.ASCII,
)
"""Names of repositories in browsers, llama.cpp and Ollama, which may contain a host or a quantization."""
LONGEST_NAME = 1024


class ForeignName(msgspec.Struct, frozen=True):
    """The parts of a repository's name in another tool's syntax."""

    repository: str
    quantization: str = ""


def parse_foreign_name(text: str) -> ForeignName | None:
    """Parse a repository's name in another tool's syntax. Return None if the text is a plain ``owner/name``, or not a
    repository."""
    match = OTHER_WORDS.fullmatch(text) if len(text) <= LONGEST_NAME else None
    if match is None or text == match["repository"] or is_host(match["repository"].partition("/")[0]):
        return None
    return ForeignName(match["repository"], match["quantization"] or "")


def is_host(word: str) -> bool:
    """Whether the first part of a name is the Hub's host instead of an owner."""
    return word.partition(":")[0].rstrip(".").lower() in HOSTS


def fault_of_host(text: str) -> str:
    """Return the message for a name that begins with one of ``OTHER_HOSTS``; empty for any other name."""
    host = text.removeprefix("hf://").partition("/")[0]
    name, colon, port = host.partition(":")
    other = any(OTHER_HOSTS.fullmatch(one) for one in (name.rstrip("."), f"{name.rstrip('.')}{colon}{port}"))
    return f"{text[:256]!r} is on {host}, not on the Hugging Face Hub: write {SOME_REPOSITORY}" if other else ""


def what_to_write(text: str, before: str = "") -> str:
    """Return the end of a message that suggests the correct spelling of a name in another tool's syntax. Empty for any
    other name. ``before`` is the prefix of a correct name."""
    name = parse_foreign_name(text)
    if name is None:
        return ""
    file = f", and name its {name.quantization} file in the field for files" if name.quantization else ""
    return f": write {before}{name.repository}{file}"


class HuggingFaceFile(msgspec.Struct, frozen=True):
    """A file in the default branch of a model repository."""

    repository: str
    """``owner/name``."""
    file: str
    """Path inside the repository."""

    def __str__(self) -> str:
        return f"hf:{self.repository}/{self.file}"

    def fault(self, repository: str, file: str) -> str | None:
        """Return the problem with the repository or the file, or None if both are valid. ``repository`` and ``file``
        are the field names for the message. An engine would report the problem only after minutes or never."""
        if elsewhere := fault_of_host(self.repository):
            return f"{repository}: {elsewhere}."
        if not REPOSITORY.fullmatch(self.repository) or is_host(self.repository.partition("/")[0]):
            usual = "such as Qwen/Qwen2.5-0.5B-Instruct-GGUF"
            advice = what_to_write(self.repository).replace(": write", ". Write", 1)
            return f"{repository}: {self.repository!r} is not a repository ID {usual}{advice}."
        if self.file.startswith("/") or ".." in self.file.split("/"):
            return f"{file}: {self.file!r} is not a path inside the repository."
        return None


def environment(endpoint: str, home: str = "") -> dict[str, str]:
    """Return the environment variables that set the home directory to ``home``, with the Hub's cache below it, and the
    Hub's URL to the mirror ``endpoint``. Omit the variables of an empty argument."""
    place = {"HOME": home, "HF_HOME": f"{home}/huggingface"} if home else {}
    return {**place, "HF_ENDPOINT": endpoint} if endpoint else place


def candidates(secret_keys: Sequence[str] = SECRET_KEYS) -> dict[str, str]:
    """Return the loader's environment variables for the token: variable -> key of the Secret."""
    return {f"{CANDIDATE}{place}": key for place, key in enumerate(secret_keys)}


def chosen_token(environment: Mapping[str, str]) -> dict[str, str]:
    """Return ``HF_TOKEN`` and the first token in the loader's variables for the token; empty if there is no token."""
    first_token = next((token for name in candidates() if (token := environment.get(name, "").strip())), "")
    return {TOKEN: first_token} if first_token else {}


class HubReference(msgspec.Struct, frozen=True):
    """A repository of the Hub, or a file in it."""

    repository: str
    """``owner/name``."""
    revision: str = ""
    """Branch, tag or commit; empty for the default branch."""
    file: str = ""
    """Path inside the repository; empty for the whole repository."""

    @property
    def pinned(self) -> str:
        """The repository with its revision: ``owner/name[@revision]``."""
        return f"{self.repository}@{self.revision}" if self.revision else self.repository


def reference(words: Sequence[str], original: str) -> HubReference:
    """Parse the components of a reference: ``owner``, ``name[@revision]``, and the path of a file, which may end with
    ``@revision`` instead. If the first component is the Hub's host, the others are the path of a web page (see
    :func:`page_of`). Raise ValueError if they are invalid. Messages contain ``original``, the whole reference."""
    if is_host(words[0]):
        words = page_of("/".join(words[1:]), original) or words
    if elsewhere := fault_of_host("/".join(words)):
        raise ValueError(elsewhere)
    if words[0].lower() in NOT_MODELS:
        raise ValueError(f"{original!r} is not a model: the hub has something else below {words[0]}/")
    name, at, revision = (words[1] if len(words) > 1 else "").partition("@")
    path = list(words[2:])
    if revision == "refs" and len(path) >= 2:
        revision, path = "/".join((revision, *path[:2])), path[2:]
    if not at and path and "@" in path[-1]:
        path[-1], at, revision = path[-1].rpartition("@")
    repository, file = f"{words[0]}/{name}", "/".join(path)
    if not REPOSITORY.fullmatch(repository) or is_host(words[0]):
        plain, colon, quantization = repository.partition(":")
        if colon and REPOSITORY.fullmatch(plain):
            raise ValueError(f"{original!r} contains a quantization. Write {plain}, and quantization: {quantization}")
        raise ValueError(f"{original!r} is not {SOME_REPOSITORY}{what_to_write(original)}")
    if at and (not REVISION.fullmatch(revision) or fault_inside(revision)):
        raise ValueError(f"{revision!r} is not a branch, tag or commit of {repository}")
    if path and fault_inside(file):
        raise ValueError(f"{file!r} is not a path inside {repository}")
    return HubReference(repository, revision, file)


def page_of(path: str, original: str) -> list[str] | None:
    """Convert the path of a repository's or a file's web page to components for :func:`reference`. Return None for a
    file of a repository without an owner. Raise ValueError for other pages."""
    words = [unquote(part) for part in path.strip("/").split("/")]
    if len(words) > 1 and words[1] in FILE_PAGES and words[0] not in NOT_MODELS:
        return None
    if len(words) > 3 and words[2] in FILE_PAGES:
        return [words[0], f"{words[1]}@{words[3]}", *words[4:]]
    if len(words) == 4 and words[2] == "tree":
        return [words[0], f"{words[1]}@{words[3]}"]
    if len(words) > 2:
        raise ValueError(f"{original!r} is neither the page of a repository nor of a file")
    return words


REFUSALS = (
    (401, "the hub requires a token, or the name does not exist. Check the names, and set HF_TOKEN"),
    (403, "the token is not allowed to read this repository. Accept its terms on the hub, or use another token"),
    (429, "the hub limits requests for now; the pod retries automatically"),
)
"""HTTP statuses, each with its cause and the user's next step."""


def passes(status: int) -> bool:
    """Whether an HTTP status of the Hub is temporary, so that a later request may succeed."""
    return status == 429 or status >= 500


MISSING = {
    "repository": "the hub has no such repository. Check its name in the spec",
    "file": "the hub has no such file. Check its name and that of the repository in the spec",
    "": "the hub has no such repository or file. Check their names in the spec",
}
"""What was requested -> the message for status 404. The empty key means either a repository or a file."""


def explain_status(status: int, requested: str = "") -> str:
    """Explain an HTTP error status of the Hub, and the user's next step. ``requested`` is a key of ``MISSING``."""
    if status == 404:
        return MISSING[requested]
    if status >= 500:
        return "the hub has an internal error; the pod retries automatically"
    return next((text for code, text in REFUSALS if code == status), "the hub rejected the download")
