"""API keys change while the gateway runs, and are never stored."""

from __future__ import annotations

import pytest
import requests

from tests.gateway.conftest import settle, wait_for
from tests.gateway.standalone import PATIENCE, Standalone


@pytest.fixture
def guarded(keyed: Standalone) -> Standalone:
    """A gateway without models or keys."""
    keyed.route({})
    settle(keyed)
    return keyed


def status(gateway: Standalone, key: str) -> int:
    answer = requests.get(f"{gateway.url}/v1/models", headers={"authorization": f"Bearer {key}"}, timeout=PATIENCE)
    return answer.status_code


def test_keys_come_and_go_at_once_and_only_hashes_are_kept(guarded: Standalone) -> None:
    assert status(guarded, "sk-one-secret") == 401, "without keys, every request is rejected"
    guarded.route({}, {"one": "sk-one-secret"})
    wait_for(lambda: status(guarded, "sk-one-secret") == 200)
    guarded.route({}, {"two": "sk-two-secret"})
    wait_for(lambda: status(guarded, "sk-two-secret") == 200)
    wait_for(lambda: status(guarded, "sk-one-secret") == 401)
    written = [path for path in guarded.directory.rglob("*") if path.is_file() and path != guarded.table]
    assert not [path for path in written if "-secret" in path.read_text(errors="replace")]
