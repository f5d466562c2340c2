"""The Hugging Face Hub as a source: references to it, environment variables for it, and its error codes. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import msgspec

from slipway.artifacts.locations.paths import fault_inside

TOKEN = "HF_TOKEN"  # noqa: S105 - the variable's name
"""The variable that llama.cpp and current clients of the Hub read."""
OLD_TOKEN = "HUGGINGFACE_HUB_TOKEN"  # noqa: S105 - the variable's name
"""The variable of older clients of the Hub; llama.cpp does not read it."""
SECRET_KEYS = ("token", TOKEN, "HUGGING_FACE_HUB_TOKEN")
"""Possible keys for the token in a Secret; the first existing one counts."""
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
"""Hosts of images, code and other models; none of them is a valid owner on the Hub. Only ``localhost`` could be one."""
NOT_MODELS = ("datasets", "spaces", "api", "docs", "models", "blog", "papers", "collections", "settings", "join")
"""First path components of the Hub that are not owners."""
FILE_PAGES = ("resolve", "blob", "raw")


NAME_PART = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
OTHER_WORDS = re.compile(
    rf"(?:hf:(?://)?)?(?:https?://)?(?:(?:{'|'.join(map(re.escape, HOSTS))})(?::443)?/)?"
    rf"(?P<repository>{NAME_PART}/{NAME_PART})(?::(?P<quantization>[\w.-]{{1,64}}))?(?:[/?#@].*)?",
    re.IGNORECASE | re.ASCII,
)
"""The syntax of browsers, llama.cpp and Ollama for a repository: with its host, or with a quantization."""
LONGEST_NAME = 1024


class ForeignName(msgspec.Struct, frozen=True):
    """The parts of a name in another tool's syntax."""

    repository: str
    quantization: str = ""


def parse_foreign_name(text: str) -> ForeignName | None:
    """Parses a name in another tool's syntax. Returns None if it has no such syntax or no meaning."""
    match = OTHER_WORDS.fullmatch(text) if len(text) <= LONGEST_NAME else None
    if match is None or text == match["repository"] or is_host(match["repository"].partition("/")[0]):
        return None
    return ForeignName(match["repository"], match["quantization"] or "")


def is_host(word: str) -> bool:
    """Whether the first part of a name is the Hub's host instead of an owner."""
    return word.partition(":")[0].rstrip(".").lower() in HOSTS


def fault_of_host(text: str) -> str:
    """Returns the message for a name that begins with a host other than the Hub; empty: it does not."""
    host = text.removeprefix("hf://").partition("/")[0]
    name, colon, port = host.partition(":")
    other = any(OTHER_HOSTS.fullmatch(one) for one in (name.rstrip("."), f"{name.rstrip('.')}{colon}{port}"))
    return f"{text[:256]!r} is on {host}, not on the Hugging Face Hub: write {SOME_REPOSITORY}" if other else ""


def what_to_write(text: str, before: str = "") -> str:
    """Returns the end of a message that suggests the correct name, for a name in another tool's syntax; empty for any
    other. ``before``: prefix of names in this field."""
    name = parse_foreign_name(text)
    if name is None:
        return ""
    file = f", and name its {name.quantization} file in the field for files" if name.quantization else ""
    return f": write {before}{name.repository}{file}"


class HuggingFaceFile(msgspec.Struct, frozen=True):
    """A file in a model repository, in its default branch."""

    repository: str
    """``owner/name``."""
    file: str
    """Path inside the repository."""

    def __str__(self) -> str:
        return f"hf:{self.repository}/{self.file}"

    def fault(self, repository: str, file: str) -> str | None:
        """Returns the problem with the name, or None; the message uses the given names of the two fields. Checked
        here, because engines report it only after minutes or never."""
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
    """Returns variables that store the Hub's cache below ``home`` and, if ``endpoint`` is set, use a mirror of the
    Hub."""
    place = {"HOME": home, "HF_HOME": f"{home}/huggingface"} if home else {}
    return {**place, "HF_ENDPOINT": endpoint} if endpoint else place


def candidates(secret_keys: Sequence[str] = SECRET_KEYS) -> dict[str, str]:
    """Returns variable -> key of the Secret."""
    return {f"{CANDIDATE}{place}": key for place, key in enumerate(secret_keys)}


def chosen_token(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variable with the first token among the candidates; empty if there are none."""
    first_token = next((token for name in candidates() if (token := environment.get(name, "").strip())), "")
    return {TOKEN: first_token} if first_token else {}


class HubReference(msgspec.Struct, frozen=True):
    """A repository of the Hub, or a file in it."""

    repository: str
    """``owner/name``."""
    revision: str = ""
    file: str = ""
    """Path inside the repository."""

    @property
    def pinned(self) -> str:
        """``owner/name[@revision]``."""
        return f"{self.repository}@{self.revision}" if self.revision else self.repository


def reference(words: Sequence[str], original: str) -> HubReference:
    """Parses the path components ``owner``, ``name[@revision]`` and a file's path, which may end with ``@revision``
    instead. Raises ValueError; ``original``: the original text for messages."""
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
    """Converts the path of a web page, of a repository or a file, to the components for ``reference``. None: a file of
    a repository without an owner. Raises ValueError."""
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
"""HTTP status -> what the user can do about it."""


def passes(status: int) -> bool:
    """Whether the Hub may answer differently after a while."""
    return status == 429 or status >= 500


MISSING = {
    "repository": "the hub has no such repository. Check its name in the spec",
    "file": "the hub has no such file. Check its name and that of the repository in the spec",
    "": "the hub has no such repository or file. Check their names in the spec",
}
"""What was requested -> what the user can do about the status 404."""


def explain_status(status: int, requested: str = "") -> str:
    """Returns what the user can do about an HTTP status of the Hub. ``requested``: a key of MISSING."""
    if status == 404:
        return MISSING[requested]
    if status >= 500:
        return "the hub has an internal error; the pod retries automatically"
    return next((text for code, text in REFUSALS if code == status), "the hub rejected the download")
