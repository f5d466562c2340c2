"""Sources of LLMKube's Models: what each text means, and what is refused."""

from __future__ import annotations

import re
import tracemalloc
from typing import Any

import msgspec
import pytest

from slipway.apis.llmkube import names
from slipway.apis.llmkube.models.spec import key, key_of, source_of
from slipway.apis.llmkube.types.model import SOURCE, ModelSpec
from slipway.artifacts.locations.redaction import redact_url
from slipway.kube.values.names import fitting, label_value
from slipway.serving.contract.api import InvalidSpecError
from slipway.serving.contract.settings import Sources
from slipway.weights.sources.source import Source, file_name
from tests.tables import each

RULES = Sources(allowed_host_path_roots=("/mnt/models", "/data/"), allowed_remote_hosts=("10.1.0.0/16",))
TINY = "https://huggingface.co/acme/tiny-GGUF/resolve/main/tiny.Q4_K_M.gguf"
HUB = {"kind": "hub", "url": "hf://acme/tiny-GGUF@main", "files": ["tiny.Q4_K_M.gguf"], "storedAs": "tiny.Q4_K_M.gguf"}


def spec(source: str, **others: Any) -> ModelSpec:
    """Past the schema, which refuses some of these as well."""
    return msgspec.structs.replace(msgspec.convert({"source": "any/thing"} | others, ModelSpec), source=source)


def parse_source(source: str, **others: Any) -> Source:
    return source_of(spec(source, **others), "tiny", RULES)


def hub(file: str, url: str = "hf://acme/tiny-GGUF", stored: str = "") -> Source:
    return Source(kind="hub", url=url, files=(file,), stored_as=stored or file.rpartition("/")[2])


def repository(text: str) -> Source:
    return Source(kind="repository", url=f"hf://{text}", repository=text)


def web(url: str, stored: str = "x.gguf") -> Source:
    return Source(kind="web", url=url, stored_as=stored)


def bucket(url: str, stored: str = "x.gguf") -> Source:
    return Source(kind="bucket", url=url, stored_as=stored)


PINNED = "hf://acme/tiny-GGUF@main"
MEANT: dict[str, Source] = {
    "https://files.example/deep/x.gguf": web("https://files.example/deep/x.gguf"),
    "HTTP://Files.Example:8080/x.gguf": web("http://Files.Example:8080/x.gguf"),
    "https://me:secret@files.example/x.gguf?sig=a%2Fb#part": web("https://me:secret@files.example/x.gguf?sig=a%2Fb"),
    "https://files.example/my%20model%2B.gguf": web("https://files.example/my%20model%2B.gguf", "my-model.gguf"),
    "https://files.example/download?id=5": web("https://files.example/download?id=5", "download.gguf"),
    "https://files.example/...": web("https://files.example/...", "tiny.gguf"),
    "http://10.1.2.3/x.gguf": web("http://10.1.2.3/x.gguf"),
    "https://huggingface.co.example/acme/x.gguf": web("https://huggingface.co.example/acme/x.gguf"),
    "https://huggingface.co@files.example/x.gguf": web("https://huggingface.co@files.example/x.gguf"),
    "https://huggingface.co:8443/a/b/resolve/main/x.gguf": web("https://huggingface.co:8443/a/b/resolve/main/x.gguf"),
    "https://huggingface.co/gpt2/resolve/main/x.gguf": web("https://huggingface.co/gpt2/resolve/main/x.gguf"),
    TINY: hub("tiny.Q4_K_M.gguf", PINNED),
    f"{TINY}?download=true": hub("tiny.Q4_K_M.gguf", PINNED),
    f"{TINY}#top": hub("tiny.Q4_K_M.gguf", PINNED),
    TINY.replace("resolve", "blob"): hub("tiny.Q4_K_M.gguf", PINNED),
    TINY.replace("https://huggingface.co", "HTTPS://HuggingFace.Co:443"): hub("tiny.Q4_K_M.gguf", PINNED),
    TINY.replace("huggingface.co", "hf.co"): hub("tiny.Q4_K_M.gguf", PINNED),
    TINY.replace("main", "refs%2Fpr%2F1"): hub("tiny.Q4_K_M.gguf", "hf://acme/tiny-GGUF@refs/pr/1"),
    TINY.replace("main/", "main/sub%20dir/"): hub("sub dir/tiny.Q4_K_M.gguf", PINNED),
    "hf://acme/tiny-GGUF/x.gguf": hub("x.gguf"),
    "HF://acme/tiny-GGUF/x.gguf": hub("x.gguf"),
    "hf://acme/tiny-GGUF/deep/x.gguf": hub("deep/x.gguf"),
    "hf://acme/tiny-GGUF@v1/x.gguf": hub("x.gguf", "hf://acme/tiny-GGUF@v1"),
    "hf://acme/tiny-GGUF/x.gguf@v1": hub("x.gguf", "hf://acme/tiny-GGUF@v1"),
    "hf://acme/tiny-GGUF@refs/pr/7/x.gguf": hub("x.gguf", "hf://acme/tiny-GGUF@refs/pr/7"),
    "acme/tiny-GGUF/x.gguf": hub("x.gguf"),
    "acme/tiny": repository("acme/tiny"),
    "acme/tiny@v1.0": repository("acme/tiny@v1.0"),
    "acme/tiny@refs/pr/7": repository("acme/tiny@refs/pr/7"),
    "hf://acme/tiny": repository("acme/tiny"),
    "hf://acme/tiny/?x=1": repository("acme/tiny"),
    "https://huggingface.co/acme/tiny": repository("acme/tiny"),
    "https://huggingface.co/acme/tiny/": repository("acme/tiny"),
    "https://huggingface.co/acme/tiny?library=vllm#card": repository("acme/tiny"),
    "https://huggingface.co/acme/tiny/tree/v1": repository("acme/tiny@v1"),
    "s3://weights/deep/x.gguf": bucket("s3://weights/deep/x.gguf"),
    "S3://weights/x.gguf": bucket("s3://weights/x.gguf"),
    "pvc://claim/deep/x.gguf": Source(kind="claim", claim="claim", path="deep/x.gguf"),
    "PVC://claim/x.gguf": Source(kind="claim", claim="claim", path="x.gguf"),
    "/mnt/models/x.gguf": Source(kind="host", path="/mnt/models/x.gguf", stored_as="x.gguf"),
    "file:///mnt/models/x.gguf": Source(kind="host", path="/mnt/models/x.gguf", stored_as="x.gguf"),
    "FILE:///data/x.gguf": Source(kind="host", path="/data/x.gguf", stored_as="x.gguf"),
}


@each(MEANT)
def test_a_source_means_this(text: str) -> None:
    assert parse_source(text) == MEANT[text]


WHOLE = {
    "s3://weights/folder": Source(kind="bucket", url="s3://weights/folder"),
    "s3://weights": Source(kind="bucket", url="s3://weights"),
    "s3://weights/model.safetensors": bucket("s3://weights/model.safetensors", "model.safetensors"),
    "pvc://claim": Source(kind="claim", claim="claim"),
    "pvc://claim/folder/": Source(kind="claim", claim="claim", path="folder"),
    "https://files.example/model.tar": web("https://files.example/model.tar", "model.tar"),
    "/mnt/models/tiny": Source(kind="host", path="/mnt/models/tiny"),
    "acme/tiny/model.safetensors": hub("model.safetensors", "hf://acme/tiny"),
}


@pytest.mark.parametrize("text", WHOLE)
def test_a_source_other_than_gguf_may_be_a_folder_and_keeps_its_file_extension(text: str) -> None:
    assert parse_source(text, format="safetensors") == WHOLE[text]


REFUSED = {
    "InvalidSource": """
        model.gguf nonsense /  // /mnt/models/../../etc/shadow /mnt/models/./x.gguf /mnt/models//x.gguf
        file://etc/passwd file://localhost/etc/passwd file:/mnt/models/x.gguf file:///mnt/models/../x.gguf
        ftp://files.example/x.gguf oci://registry/x javascript:/x gs://bucket/x.gguf
        https:///x.gguf https://files.example https://files.example/ https://files.example/folder/ http://[::1/x.gguf
        http://files.example:port/x.gguf https://files.example/a\\b.gguf
        hf:// hf://acme hf:///acme/x acme/ hf://acme/tiny@ hf://acme/tiny@../x hf://acme/../x hf://acme/tiny/../x
        hf://acme/tiny@-x acme/tiny@a/../b hf://acme/tiny/a//b
        datasets/acme/x spaces/acme/x hf://datasets/acme/x HF://Datasets/acme/x https://huggingface.co/datasets/acme/x
        https://huggingface.co/spaces/acme/x https://huggingface.co/datasets/acme/x/resolve/main/x.gguf
        https://huggingface.co/acme https://huggingface.co/ https://huggingface.co/models?search=x
        https://huggingface.co/acme/tiny/tree/main/folder https://huggingface.co/acme/tiny/discussions
        https://huggingface.co/acme/tiny/resolve/main/..%2F..%2Fx.gguf https://huggingface.co/acme/tiny/discussions/1
        s3:// s3://weights s3://weights/ s3://we_ir:d/x.gguf s3://weights/../x.gguf s3://-w/x.gguf
        s3://büro/x.gguf s3://w٣٤/x.gguf
        pvc:// pvc://claim pvc://claim/ pvc://Claim/x.gguf pvc://claim/../x.gguf pvc://claim//x.gguf pvc:///x.gguf
        pvc://claim/./x.gguf pvc://-claim/x.gguf
    """,
    "SourceNotAllowed": """
        /etc/passwd /acme /mnt/models /mnt/models-of-others/x.gguf /mnt/model/x.gguf /MNT/models/x.gguf
        file:///etc/passwd FILE:///etc/passwd /data /database/x.gguf
        http://169.254.169.254/latest/meta-data http://127.0.0.1/x.gguf http://[::1]/x.gguf http://10.0.0.1/x.gguf
        http://[::ffff:10.0.0.1]/x.gguf http://192.168.1.1:8080/x.gguf HTTP://100.64.0.1/x.gguf http://0.0.0.0/x
    """,
}


@each([(reason, text) for reason in REFUSED for text in REFUSED[reason].split()])
def test_an_empty_or_forbidden_source_is_refused(reason: str, text: str) -> None:
    with pytest.raises(InvalidSpecError) as refused:
        parse_source(text)
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    "text", ["https://files.example/a b", "acme/ti\nny", "hf://acme/tiny\0", "/mnt/models/\x1b[1m"]
)
def test_characters_that_no_source_has_are_refused(text: str) -> None:
    with pytest.raises(InvalidSpecError):
        parse_source(text)


def test_a_refusal_contains_no_secret() -> None:
    for end in ("", "a b.gguf", "\n"):
        with pytest.raises(InvalidSpecError) as refused:
            parse_source(f"https://me:hunter2@files.example/{end}?sig=hunter2")
        assert "hunter2" not in refused.value.message
    assert redact_url("https://me:hunter2@files.example/x?sig=hunter2#hunter2") == "https://files.example/x"
    assert redact_url("HTTPS://me:hunt?er2@files.example/x@y?z") == "HTTPS://files.example/x@y"
    assert redact_url("acme/tiny@main") == "acme/tiny@main"


def test_without_folders_that_the_operator_allows_no_path_is_read() -> None:
    with pytest.raises(InvalidSpecError, match="allows: none"):
        source_of(spec("/mnt/models/x.gguf"), "tiny", Sources())


@pytest.mark.parametrize("root", ["", "mnt/models", "/mnt/../mnt/models", "."])
def test_a_root_that_is_no_folder_allows_nothing(root: str) -> None:
    with pytest.raises(InvalidSpecError):
        source_of(spec("/mnt/models/x.gguf"), "tiny", Sources(allowed_host_path_roots=(root,)))


def test_a_path_of_a_mac_needs_no_leave_as_nothing_in_the_cluster_reads_it() -> None:
    assert parse_source("/Users/me/x.gguf", hardware={"accelerator": "metal"}).path == "/Users/me/x.gguf"


def test_a_set_of_files_is_of_a_repository_or_a_folder_of_a_bucket() -> None:
    parts = ["a-00001-of-00002.gguf", "a-00002-of-00002.gguf"]
    assert parse_source("acme/tiny@v1", files=parts, mmproj="mm/proj.gguf") == Source(
        kind="hub", url="hf://acme/tiny@v1", repository="acme/tiny@v1", files=(*parts, "mm/proj.gguf")
    )
    assert parse_source("s3://weights/a", files=parts) == Source(
        kind="bucket", url="s3://weights/a", files=tuple(parts)
    )
    assert parse_source("acme/tiny", files=parts).main == parts[0]
    assert parse_source("acme/tiny", files=["*.safetensors", "*.json"]).main == ""
    assert parse_source("acme/tiny", files=["a.gguf"], mmproj="a.gguf").files == ("a.gguf",)


@pytest.mark.parametrize(
    ("source", "others"),
    [
        ("https://files.example/x.gguf", {"files": ["a.gguf"]}),
        (TINY, {"files": ["a.gguf"]}),
        ("pvc://claim/x.gguf", {"files": ["a.gguf"]}),
        ("/mnt/models/x.gguf", {"files": ["a.gguf"]}),
        ("acme/tiny", {"mmproj": "a.gguf"}),
        ("acme/tiny", {"files": ["/a.gguf"]}),
        ("acme/tiny", {"files": ["../a.gguf"]}),
        ("acme/tiny", {"files": ["b/./a.gguf"]}),
        ("acme/tiny", {"files": ["b\\a.gguf"]}),
        ("acme/tiny", {"files": ["a.gguf"], "mmproj": "*.gguf"}),
        ("acme/tiny", {"files": ["a.gguf"], "mmproj": "../a.gguf"}),
    ],
)
def test_sets_that_cannot_be_are_refused(source: str, others: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpecError) as refused:
        parse_source(source, **others)
    assert refused.value.reason == "InvalidFileSet"


@pytest.mark.parametrize("others", [{}, {"format": "safetensors"}])
def test_a_hash_that_cannot_be_checked_is_rejected(others: dict[str, Any]) -> None:
    """The original takes it, and never looks at it again."""
    with pytest.raises(InvalidSpecError, match="for a single file"):
        parse_source("acme/tiny", sha256="a" * 64, **others)
    assert parse_source("acme/tiny", sha256="a" * 64, files=["a.gguf"]).main == "a.gguf"


def test_the_key_of_a_source_is_the_originals() -> None:
    assert key_of({"spec": {"source": TINY}}) == key(spec(TINY))
    assert key_of({"spec": {"source": "a/b", "files": ["x"], "mmproj": "y"}}) == key(spec("a/b", files=["x", "y"]))
    assert key(spec(TINY)) == names.cache_key(TINY) == "9e83e73c762e8cb7"
    assert key(spec("a/b", files=["x"])) != key(spec("a/b")) != key(spec("a/b", files=["y"]))
    assert key(spec("a/b", files=["x", "y", "z"])) == key(spec("a/b", files=["x", "z", "y"]))
    assert key(spec("a/b", files=["x"], mmproj="y")) == key(spec("a/b", files=["x", "y"]))


def test_two_choices_of_the_main_file_do_not_share_a_folder_as_its_hash_is_that_of_one() -> None:
    assert key(spec("a/b", files=["x", "y"])) != key(spec("a/b", files=["y", "x"]))


@pytest.mark.parametrize(
    ("expected", "model", "name"),
    [
        ("Llama 3.2 3B Instruct", "m", "Llama-3.2-3B-Instruct.gguf"),
        ("llama.gguf", "m", "llama.gguf"),
        ("Llama.GGUF", "m", "Llama.gguf"),
        (".gguf", "m", "m.gguf"),
        ("--a//b  c--", "m", "a-b-c.gguf"),
        ("..", "my.model", "my.model.gguf"),
        ("日本", "日本", "model.gguf"),
        ("", "", "model.gguf"),
        ("$(reboot).gguf", "m", "reboot.gguf"),
        ("../../etc/passwd", "m", "etc-passwd.gguf"),
    ],
)
def test_names_of_files_have_nothing_that_anything_trips_over(expected: str, model: str, name: str) -> None:
    assert file_name(expected, model) == name


def test_names_of_jobs_are_dns_labels_that_no_two_models_share() -> None:
    assert names.job_name("tiny", "download") == "tiny-download"
    assert names.job_name("a.b", "download") != names.job_name("a-b", "download")
    longest = [names.job_name("x" * 252 + last, "download") for last in "ab"]
    assert len(set(longest)) == 2
    label = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
    assert all(label.fullmatch(name) for name in [*longest, names.job_name("a.b", "download"), fitting("-.-")])
    assert len(label_value("x" * 253)) == 63


def test_the_schemas_pattern_takes_every_source_that_is_meant() -> None:
    """All but capitals in schemes, which it never took."""
    plain = [text for text in [*MEANT, *WHOLE] if not re.match(r"[A-Z0-9]+:", text)]
    assert [text for text in plain if not re.match(SOURCE, text)] == []


def test_long_sources_that_are_edited_again_and_again_take_no_memory() -> None:
    def edit(number: int) -> dict[str, Any]:
        files = [f"{number}.gguf"] + [""] * 100_000
        return {"spec": {"source": f"acme/{number}-{'x' * 1_000_000}", "files": files}}

    tracemalloc.start()
    before, _peak = tracemalloc.get_traced_memory()
    for number in range(10):
        key_of(edit(number))
        key_of({"spec": edit(number)["spec"] | {"source": f"acme/{number}"}})
    after, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 500_000
