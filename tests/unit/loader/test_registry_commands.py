"""``slipway loader publish|pull|unpublish`` as a pod runs them, and imports by the depot's grants."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from slipway.artifacts.documents import publication, report
from slipway.loader import main as command
from slipway.loader.transport.errors import LoadError
from slipway.loader.transport.source import Access, open_source

from .conftest import Service, content, write
from .models import LLAMA
from .oci import Oci, sha


@pytest.fixture
def oci(start: Callable[[web.Application], Service]) -> Oci:
    fake = Oci()
    fake.service = start(fake.app())
    return fake


@pytest.fixture
def env(hub: Service, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root / "acme/llama", LLAMA)
    monkeypatch.setenv("HF_ENDPOINT", hub.url)


@pytest.mark.usefixtures("env")
def test_a_model_goes_in_comes_out_and_is_taken_away(oci: Oci, termination: Path, tmp_path: Path) -> None:
    place = f"{oci.host}/namespaced/a/m/uid"
    assert command.main(["publish", "hf://acme/llama", place, "--image"]) == 0
    record = publication.parse_publication(termination.read_text())
    assert record
    assert record.image == oci.tags["namespaced/a/m/uid"]["image"]

    assert command.main(["pull", f"{place}@{record.digest}", str(tmp_path / "out")]) == 0
    assert content(tmp_path / "out") == LLAMA
    assert command.main(["unpublish", place]) == 0
    assert command.main(["unpublish", place]) == 0
    assert not oci.manifests["namespaced/a/m/uid"]


@pytest.mark.usefixtures("env")
def test_a_failure_that_lasts_has_its_code_and_its_status(oci: Oci, termination: Path) -> None:
    assert command.main(["publish", "hf://acme/llama", f"{oci.host}/a/b", "--capacity-free", "10"]) == 3
    assert report.fault(termination.read_text())[0] == "InsufficientStorage"


@pytest.mark.usefixtures("env")
def test_a_gated_model_needs_a_token_which_may_have_any_of_its_names(
    oci: Oci, termination: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root / "acme/secret", {**LLAMA, ".hub.yaml": b"gated: true"})
    words = ["publish", "hf://acme/secret", f"{oci.host}/a/b"]
    assert command.main(words) == 3
    monkeypatch.setenv("SLIPWAY_HUB_TOKEN_1", "hf_reader_of_the_tests")
    assert command.main(words) == 0
    assert "hf_reader" not in termination.read_text()


@pytest.mark.parametrize(
    "words",
    [
        ["publish", "hf://a/b", "host:5000/a:tag"],
        ["publish", "hf://a/b", "nothing"],
        ["publish", "hf://a/b", "h/a", "--capacity-free", "-1"],
        ["pull", "host:5000/a:published", "/x"],
        ["pull", "host:5000/a", "/x"],
        ["unpublish", "host:5000/a@sha256:" + "0" * 64],
    ],
)
def test_invalid_parameters_are_rejected_before_any_request(words: list[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        command.arguments(words)
    assert raised.value.code == 2


@pytest.mark.parametrize("source", ["s3://b/x", "https://x/y", "file:///etc", "nothing"])
def test_publishing_from_an_unsupported_source_fails_permanently(source: str, termination: Path) -> None:
    assert command.main(["publish", source, "127.0.0.1:1/a/b"]) == 3
    assert "write hf://" in termination.read_text()


class Depot:
    """Returns grants, which a test can let expire."""

    def __init__(self, oci: Oci) -> None:
        self.oci, self.asked, self.status = oci, [], 200
        self.repository, self.digest, self.host = "cluster/remote/uid", "", oci.host

    def app(self) -> web.Application:
        async def grant(request: web.Request) -> web.Response:
            self.asked.append(request.headers.get("Authorization", ""))
            self.oci.token = f"grant-{len(self.asked)}"
            body = {
                "apiVersion": "catalog.slipway.inference/v1",
                "registry": self.host,
                "repository": self.repository,
                "digest": self.digest,
                "token": f"{self.oci.token}:pull",
                "expiresAt": "2026-01-01T00:00:00Z",
            }
            if self.status != 200:
                return web.Response(status=self.status, text="Unauthorized: it says no\nmore")
            return web.json_response(body)

        app = web.Application()
        app.router.add_post("/v1/imports/a/m/uid", grant)
        return app


@pytest.mark.usefixtures("env")
def test_a_model_of_a_catalog_is_imported_by_grants_that_expire(
    oci: Oci,
    start: Callable[[web.Application], Service],
    termination: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command.main(["publish", "hf://acme/llama", f"{oci.host}/cluster/remote/uid"])
    record = publication.parse_publication(termination.read_text())
    assert record
    here, own, depot = Oci(), tmp_path / "token", Depot(oci)
    here.service = start(here.app())
    own.write_text("of-the-pod")
    monkeypatch.setenv("SLIPWAY_DEPOT_TOKEN_FILE", str(own))
    depot.digest, oci.realm = record.digest, "https://elsewhere.example/token"
    host = start(depot.app()).url.partition("://")[2]
    requests: list[int] = []

    async def expire(_request: web.Request) -> None:
        requests.append(1)
        if len(requests) % 4 == 0:
            oci.token = "another"

    assert oci.service
    oci.service.interfere = expire  # type: ignore[assignment] # it only watches
    oci.token = "closed"
    assert command.main(["publish", f"catalog://{host}/v1/imports/a/m/uid@{record.digest}", f"{here.host}/a/b"]) == 0

    got = publication.parse_publication(termination.read_text())
    assert got
    assert got.facts == record.facts
    assert set(depot.asked) == {"Bearer of-the-pod"}
    assert len(depot.asked) > 2
    shown: Any = here.artifact("a/b")
    assert host not in json.dumps(shown)


ANYWHERE_ELSE = ["--guard", "--allow-host=0.0.0.0/0", "--block-network=127.0.0.0/8", "--block-network=::1/128"]


@pytest.mark.usefixtures("env")
@pytest.mark.parametrize("words", [["--guard"], ANYWHERE_ELSE])
@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "2130706433", "127.1"])
def test_another_cluster_leads_the_publisher_to_no_address_that_the_policy_refuses(
    oci: Oci, start: Callable[[web.Application], Service], termination: Path, name: str, words: list[str]
) -> None:
    depot = Depot(oci)
    depot.host = f"{name}:{oci.host.rpartition(':')[2]}"
    host = start(depot.app()).url.partition("://")[2]
    source = f"catalog://{host}/v1/imports/a/m/uid@{sha(b'wanted')}"
    depot.digest = sha(b"wanted")

    assert command.main(["publish", *words, source, f"{oci.host}/a/b"]) != 0

    assert "SourceNotAllowed" in termination.read_text()
    assert not oci.seen


@pytest.mark.parametrize("name", ["169.254.169.254", "[fd00:ec2::254]", "168.63.129.16"])
def test_no_publisher_asks_a_metadata_service(oci: Oci, start: Callable[[web.Application], Service], name: str) -> None:
    depot = Depot(oci)
    depot.host, depot.digest = name, sha(b"wanted")
    host = start(depot.app()).url.partition("://")[2]
    source = open_source(f"catalog://{host}/v1/imports/a/m/uid@{depot.digest}", {}, Access())

    with pytest.raises(LoadError, match="SourceNotAllowed"):
        source.listing(lambda function: function())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"digest": sha(b"other")}, "a different artifact"),
        ({"repository": "../x"}, "an invalid registry"),
        ({"status": 403}, "denied the grant"),
        ({"status": 424}, "denied the grant: 424 Unauthorized: it says no$"),
    ],
)
def test_a_grant_for_something_else_is_refused(
    oci: Oci, start: Callable[[web.Application], Service], change: dict[str, Any], why: str
) -> None:
    depot = Depot(oci)
    depot.digest = sha(b"wanted")
    for name, value in change.items():
        setattr(depot, name, value)
    host = start(depot.app()).url.partition("://")[2]
    source = open_source(f"catalog://{host}/v1/imports/a/m/uid@{sha(b'wanted')}", {}, Access())

    with pytest.raises(LoadError, match=why):
        source.listing(lambda function: function())
