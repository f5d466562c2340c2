"""Answers that no Python client asks for in this form, but other clients, browsers of the API and orchestrators do."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from slipway.hub import server
from slipway.hub.folder import Library
from slipway.hub.main import main
from slipway.hub.repository import Repository
from slipway.hub.tokens import InvalidTokensError, parse
from tests.ports import reserved_port

from .conftest import REPOSITORY, TOKEN, WEIGHTS, RunningHub, write

FILE = f"/{REPOSITORY}/resolve/main/tiny.gguf"


@pytest.fixture
async def http(hub: RunningHub) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(hub.endpoint) as session:
        yield session


async def test_head_says_revision_identity_and_size(hub: RunningHub, http: aiohttp.ClientSession) -> None:
    async with http.head(FILE) as answer:
        assert answer.status == 200
        assert answer.headers["X-Repo-Commit"] == hub.sha()
        assert answer.headers["X-Linked-Size"] == answer.headers["Content-Length"] == str(len(WEIGHTS))
        assert answer.headers["X-Linked-Etag"] == answer.headers["ETag"]
        assert answer.headers["Accept-Ranges"] == "bytes"
        assert not [name for name in answer.headers if name.lower().startswith("x-xet")]


@pytest.mark.parametrize(
    ("requested", "status", "start", "end"),
    [
        ("bytes=0-0", 206, 0, 1),
        ("bytes=10-19", 206, 10, 20),
        ("bytes=1048570-", 206, 1048570, 1048576),
        ("bytes=1048570-9999999", 206, 1048570, 1048576),
        ("bytes=-6", 206, 1048570, 1048576),
        ("bytes=-9999999", 206, 0, 1048576),
        ("bytes=0-1,5-6", 200, 0, 1048576),
        ("bytes=9-1", 200, 0, 1048576),
        ("lines=1-2", 200, 0, 1048576),
    ],
)
async def test_ranges(http: aiohttp.ClientSession, requested: str, status: int, start: int, end: int) -> None:
    async with http.get(FILE, headers={"Range": requested}) as answer:
        assert answer.status == status
        assert await answer.read() == WEIGHTS[start:end]
        if status == 206:
            assert answer.headers["Content-Range"] == f"bytes {start}-{end - 1}/{len(WEIGHTS)}"


@pytest.mark.parametrize("requested", ["bytes=1048576-", "bytes=9999999-"])
async def test_range_behind_the_end_is_refused_with_the_size(http: aiohttp.ClientSession, requested: str) -> None:
    async with http.get(FILE, headers={"Range": requested}) as answer:
        assert answer.status == 416
        assert answer.headers["Content-Range"] == f"bytes */{len(WEIGHTS)}"


async def test_range_of_another_version_gives_the_whole_file(http: aiohttp.ClientSession) -> None:
    async with http.get(FILE, headers={"Range": "bytes=5-", "If-Range": '"older"'}) as answer:
        assert (answer.status, await answer.read()) == (200, WEIGHTS)


async def test_head_of_a_range_has_its_length_and_no_body(http: aiohttp.ClientSession) -> None:
    async with http.head(FILE, headers={"Range": "bytes=0-9"}) as answer:
        assert (answer.status, answer.headers["Content-Length"]) == (206, "10")


async def test_empty_file_is_sent_and_the_connection_stays(http: aiohttp.ClientSession) -> None:
    for _unused in range(3):
        async with http.get(f"/{REPOSITORY}/resolve/main/empty.txt") as answer:
            assert (answer.status, answer.headers["Content-Length"], await answer.read()) == (200, "0", b"")


@pytest.mark.parametrize(
    ("query", "pull_requests"), [("", None), ("?include_prs=0", None), ("?include_prs=1", ["refs/pr/1"])]
)
async def test_refs_have_pull_requests_only_if_requested(
    http: aiohttp.ClientSession, query: str, pull_requests: list[str] | None
) -> None:
    async with http.get(f"/api/models/{REPOSITORY}/refs{query}") as answer:
        document = await answer.json()
    assert {"branches", "tags", "converts"} == document.keys() - {"pullRequests"}
    listed = document.get("pullRequests")
    assert (listed and [ref["ref"] for ref in listed]) == pull_requests


@pytest.mark.parametrize("revision", ["refs/pr/1", "refs%2Fpr%2F1", "pr%2F1"])
async def test_pull_request_is_found_with_and_without_encoding(http: aiohttp.ClientSession, revision: str) -> None:
    async with http.get(f"/{REPOSITORY}/resolve/{revision}/config.json") as answer:
        assert "proposed" in await answer.text()


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/api/models/acme/none", 404, "RepoNotFound"),
        (f"/api/models/{REPOSITORY}/revision/none", 404, "RevisionNotFound"),
        (f"/api/models/{REPOSITORY}/tree/none", 404, "RevisionNotFound"),
        (f"/api/models/{REPOSITORY}/tree/main/none", 404, "EntryNotFound"),
        (f"/{REPOSITORY}/resolve/main/none", 404, "EntryNotFound"),
        (f"/{REPOSITORY}/resolve/main/sub%20dir", 404, "EntryNotFound"),
        (f"/{REPOSITORY}/resolve/main/..%2f..%2fclosed%2fconfig.json", 404, "EntryNotFound"),
        (f"/{REPOSITORY}/resolve/main/.hub.yaml", 404, "EntryNotFound"),
        ("/acme/closed/resolve/main/config.json", 403, "GatedRepo"),
        ("/api/models?limit=none", 400, ""),
        ("/api/whoami-v2", 401, ""),
        ("/nothing/here", 404, ""),
    ],
)
async def test_failures_say_what_is_wrong(http: aiohttp.ClientSession, path: str, status: int, code: str) -> None:
    async with http.get(path) as answer:
        assert (answer.status, answer.headers.get("X-Error-Code", "")) == (status, code)
        assert (await answer.json())["error"] == answer.headers["X-Error-Message"]


async def test_text_of_a_request_cannot_add_headers(http: aiohttp.ClientSession) -> None:
    async with http.get(f"/api/models/{REPOSITORY}/revision/a%0d%0aX-Evil:%20ü") as answer:
        assert answer.status == 404
        assert "X-Evil" not in answer.headers
        assert answer.headers["X-Error-Message"] == "Invalid rev id: a??X-Evil: ?"


async def test_wrong_token_is_answered_in_the_words_that_clients_know(http: aiohttp.ClientSession) -> None:
    async with http.get("/api/models", headers={"Authorization": "Bearer hf_wrong"}) as answer:
        assert answer.status == 401
        assert answer.headers["X-Error-Message"] == "Invalid credentials in Authorization header"


async def test_search_pages_by_the_link_header(hub: RunningHub, http: aiohttp.ClientSession) -> None:
    async with http.get("/api/models?limit=1&full=true") as answer:
        (first,) = await answer.json()
        following = answer.links["next"]["url"]
    async with http.get(following) as answer:  # type: ignore[arg-type]
        (second,) = await answer.json()
        assert "next" not in answer.links
    assert [first["id"], second["id"]] == ["acme/closed", REPOSITORY]
    assert {"rfilename": "config.json"} in first["siblings"]


async def test_paths_info_understands_json(http: aiohttp.ClientSession) -> None:
    address = f"/api/models/{REPOSITORY}/paths-info/main"
    async with http.post(address, json={"paths": ["config.json"]}) as answer:
        assert [entry["path"] for entry in await answer.json()] == ["config.json"]
    async with http.post(address, json={"paths": [1]}) as answer:
        assert answer.status == 400
    async with http.post(address, data="{", headers={"Content-Type": "application/json"}) as answer:
        assert answer.status == 400


async def test_invalid_settings_fail_their_repository_alone(hub: RunningHub, http: aiohttp.ClientSession) -> None:
    write(hub.root / "acme/broken", {"a": "", ".hub.yaml": "gated: perhaps"})
    async with http.get("/api/models/acme/broken") as answer:
        assert answer.status == 500
        assert ".hub.yaml" in (await answer.json())["error"]
    async with http.get(f"/api/models/{REPOSITORY}") as answer:
        assert answer.status == 200


async def test_ready_once_every_file_is_hashed(http: aiohttp.ClientSession) -> None:
    async with http.get("/healthz") as answer:
        assert answer.status == 200
    async with asyncio.timeout(60):
        while True:
            async with http.get("/readyz") as answer:
                if answer.status == 200:
                    return
            await asyncio.sleep(0.05)


def test_tokens_file() -> None:
    tokens = parse("# comment\n\nanna hf_1\n  bert\thf_2  \n")
    assert list(tokens) == ["anna", "bert"]
    assert tokens == parse("anna hf_1\nbert hf_2")
    assert b"hf_1" not in b"".join(tokens.values())


@pytest.mark.parametrize("text", ["anna", "anna hf_1 hf_2", "anna hf_1\nanna hf_2"])
def test_wrong_line_of_the_tokens_file_is_named_without_its_token(text: str) -> None:
    with pytest.raises(InvalidTokensError, match=r"^line [12]: ") as refused:
        parse(text)
    assert "hf_" not in str(refused.value)


def test_program_refuses_what_it_cannot_serve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", str(tmp_path / "none"), "--listen", "127.0.0.1:0"]) == 2
    (tmp_path / "tokens").write_text("reader")
    assert main(["--root", str(tmp_path), "--listen", "127.0.0.1:0", "--tokens", str(tmp_path / "tokens")]) == 2
    assert "line 1" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--root", str(tmp_path), "--listen", "8080"])


async def test_program_serves_until_a_signal(root: Path, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"reader {TOKEN}\n")
    command = [sys.executable, "-m", "slipway", "hub", "--root", str(root), "--tokens", str(tmp_path / "tokens")]
    port = reserved_port()
    command += ["--listen", f"127.0.0.1:{port}"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            for attempt in range(600):
                try:
                    async with session.get(FILE, headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
                        assert await answer.read() == WEIGHTS
                    break
                except aiohttp.ClientConnectorError:
                    assert attempt < 599
                    await asyncio.sleep(0.1)
    finally:
        process.send_signal(signal.SIGTERM)
    output, _unused = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0
    assert FILE.encode() in output
    assert TOKEN.encode() not in output


# --- What one client cannot take from the others ---------------------------------------------------------------------


class Looks:
    """Counts how often repositories are looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, load = 0, Library.load

        def counted(library: Library, name: str) -> Repository | None:
            self.count += 1
            return load(library, name)

        monkeypatch.setattr(Library, "load", counted)


async def ready(http: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(60):
        while True:
            async with http.get("/readyz") as answer:
                if answer.status == 200:
                    return


async def test_a_large_repository_is_not_looked_at_for_every_request(
    hub: RunningHub, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(hub.root / "acme/large", {f"{number}.txt": "" for number in range(server.SMALL + 1)})
    monkeypatch.setattr(server, "FRESH_ENTRY", 1.0)
    await ready(http)
    looks = Looks(monkeypatch)
    for number in range(20):
        async with http.get(f"/acme/large/resolve/main/{number}.txt") as answer:
            assert answer.status == 200
    assert looks.count <= 1


async def test_a_file_that_changed_has_a_large_repository_looked_at_again(
    hub: RunningHub, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(hub.root / "acme/large", {f"{number}.txt": "" for number in range(server.SMALL + 1)})
    monkeypatch.setattr(server, "FRESH_ENTRY", 1.0)
    await ready(http)
    write(hub.root / "acme/large", {"7.txt": "newer"})
    answers = []
    for _unused in range(2):
        async with http.get("/acme/large/resolve/main/7.txt") as answer:
            answers.append((answer.status, await answer.text() if answer.status == 200 else ""))
    assert answers[-1] == (200, "newer")


async def test_the_search_looks_at_a_repository_once_a_minute(
    hub: RunningHub, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ready(http)
    looks = Looks(monkeypatch)
    for _unused in range(10):
        async with http.get("/api/models") as answer:
            assert len(await answer.json()) == 2
    assert looks.count <= 2


async def test_a_search_returns_at_most_one_page_of_repositories(hub: RunningHub, http: aiohttp.ClientSession) -> None:
    for number in range(server.MAX_RESULTS + 5):
        (hub.root / f"many/m{number}").mkdir(parents=True)
    async with http.get("/api/models?author=many&limit=1000") as answer:
        assert len(await answer.json()) == server.MAX_RESULTS
        assert 'rel="next"' in answer.headers["Link"]


async def test_an_address_has_a_limited_number_of_requests_and_probes_are_answered(
    hub: RunningHub, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ready(http)
    monkeypatch.setattr(server, "MOST_AT_ONCE", 2)
    entered, leave, load = asyncio.Semaphore(0), threading.Event(), Library.has

    def slow(library: Library, name: str) -> bool:
        loop.call_soon_threadsafe(entered.release)
        assert leave.wait(60)
        return load(library, name)

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(Library, "has", slow)
    held = [asyncio.create_task(http.get(f"/api/models/{REPOSITORY}").__aenter__()) for _unused in range(2)]
    for _unused in held:
        await asyncio.wait_for(entered.acquire(), 60)
    async with http.get(f"/api/models/{REPOSITORY}") as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
    async with http.get("/healthz") as answer:
        assert answer.status == 200
    leave.set()
    for task in held:
        answer = await task
        assert answer.status == 200
        answer.release()
    async with http.get(f"/api/models/{REPOSITORY}") as answer:
        assert answer.status == 200, "what is over counts no more"


async def test_a_hostile_repository_keeps_the_hub_from_nothing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root, {"acme/tiny/config.json": "{}", "evil/deep/.hub.yaml": "[" * 5000, "evil/deep/a": ""})
    write(root, {"evil/nested/" + "/".join("d" * 100) + "/x": ""})
    running = TestServer(server.application(root, None))
    await running.start_server()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{running.port}") as http:
            await ready(http)
            for name, status in (("acme/tiny", 200), ("evil/deep", 500), ("evil/nested", 500)):
                async with http.get(f"/api/models/{name}") as answer:
                    assert answer.status == status
            async with http.get("/api/models") as answer:
                assert [row["id"] for row in await answer.json()] == ["acme/tiny"]
    finally:
        await running.close()


async def test_a_repository_cannot_lift_the_operators_gate(tmp_path: Path) -> None:
    write(tmp_path / "root", {"acme/tiny/config.json": "{}", "acme/tiny/.hub.yaml": "gated: false"})
    running = TestServer(server.application(tmp_path / "root", None, ["acme/*"]))
    await running.start_server()
    try:
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{running.port}") as http,
            http.get("/acme/tiny/resolve/main/config.json") as answer,
        ):
            assert (answer.status, answer.headers["X-Error-Code"]) == (403, "GatedRepo")
    finally:
        await running.close()


@pytest.mark.parametrize("pattern", ["acme", "/etc/passwd", "../x", "acme/tiny/x", ""])
def test_a_gate_that_means_no_repository_is_refused(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--root", str(tmp_path), "--listen", "127.0.0.1:0", "--gated", pattern])
    assert caught.value.code == 2
