"""The settings file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slipway.gateway import settings as settings_module
from slipway.gateway.haproxy.config.haproxy_cfg import configuration
from slipway.gateway.routing.table import EMPTY
from slipway.gateway.settings import InvalidSettingsError, Jwt, Settings, load_settings, split_address


def test_an_empty_file_means_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text("")
    assert load_settings(file) == Settings()


@pytest.mark.parametrize(
    "text",
    [
        "holdSecond: 3",
        "maxBodyBytes: many",
        "holdRequests: -1",
        "threads: 0",
        "a: [",
        "- 1",
        "trustedProxies: [nowhere]",
        "corsOrigins: ['*']",
        "corsOrigins: [chat.example.org]",
        "corsOrigins: ['https://chat.example.org/page']",
        'corsOrigins: ["https://a.example\\n    http-request allow"]',
    ],
)
def test_invalid_settings_are_refused_with_the_files_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(text)
    with pytest.raises(InvalidSettingsError, match=r"gateway\.yaml"):
        load_settings(file)


def test_a_memory_limit_that_is_too_low_is_refused_with_the_fix(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text("memoryBytes: 314572800")
    with pytest.raises(InvalidSettingsError, match=r"memory limit .*gateway_resources.*lower maxBodyBytes or threads"):
        load_settings(file)
    file.write_text("memoryBytes: 402653184")
    assert load_settings(file).memory_bytes == 402653184


@pytest.mark.parametrize(
    ("text", "expected"), [(":8080", ("", 8080)), ("127.0.0.1:1", ("127.0.0.1", 1)), ("[::1]:2", ("::1", 2))]
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert split_address(text) == expected


def test_owners_of_ids_are_read(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(
        "routedNamespaces: slipway.inference/routed in (yes)\nidOwners: {gpt-4o: bank, meta-llama/x: bank}\n"
        "hubOrganizations: [meta-llama]\nforeignEndpoints: true\n"
    )
    settings = load_settings(file)
    assert settings.id_owners == {"gpt-4o": "bank", "meta-llama/x": "bank"}
    assert (settings.hub_organizations, settings.foreign_endpoints) == (("meta-llama",), True)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("idOwners: {bad id: bank}", "idOwners: 'bad id' is not a model ID"),
        ("idOwners: {advisor: The Bank}", "idOwners: 'The Bank' is not a namespace"),
        ("idOwners: [advisor]", "idOwners"),
        ("hubOrganizations: [a/b]", "hubOrganizations: 'a/b'"),
        ("routedNamespaces: a in b", "routedNamespaces: 'a in b' is not a label selector"),
        ("foreignEndpoints: sometimes", "foreignEndpoints"),
    ],
)
def test_an_invalid_setting_of_id_owners_is_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(text)
    with pytest.raises(InvalidSettingsError) as refused:
        load_settings(file)
    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("listen", "ipv6", "bound"),
    [
        (":8080", True, "bind :::8080 v4v6"),
        ("[::]:8080", True, "bind :::8080 v4v6"),
        (":8080", False, "bind 0.0.0.0:8080"),
        ("0.0.0.0:8080", True, "bind 0.0.0.0:8080"),
        ("127.0.0.1:8080", False, "bind 127.0.0.1:8080"),
        ("[fd00::1]:8080", True, "bind fd00::1:8080"),
    ],
)
def test_the_gateway_listens_on_both_families_if_the_kernel_has_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listen: str, ipv6: bool, bound: str
) -> None:
    monkeypatch.setattr(settings_module, "has_ipv6", lambda: ipv6)
    path = tmp_path / "gateway.yaml"
    path.write_text(json.dumps({"listen": listen}))
    assert bound in configuration(load_settings(path), EMPTY)


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("", 27262976),
        ("maxBodyBytes: 0", 27262976),
        ("memoryBytes: 805306368", 27262976),
        ("memoryBytes: 402653184", 16777216),
        ("{memoryBytes: 805306368, threads: 4}", 16777216),
        ("maxBodyBytes: 4096", 4096),
    ],
)
def test_audio_of_openais_size_is_accepted_if_the_memory_allows_it(tmp_path: Path, text: str, most: int) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(text)
    assert load_settings(file).max_body_bytes == most
    assert most != 27262976 or most > 25 * 1024 * 1024 + 65536


@pytest.mark.parametrize("text", ["maxBodyBytes: 1", "maxBodyBytes: -1", "[1]"])
def test_an_invalid_body_size_or_document_is_rejected(tmp_path: Path, text: str) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(text)
    with pytest.raises(InvalidSettingsError):
        load_settings(file)


JWT = "apiKeysSecret: keys\njwt: {issuer: 'https://i', audience: us, jwksUrl: 'https://i/keys', %s}"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (JWT.replace("apiKeysSecret: keys", "") % "claim: sub", "apiKeysSecret"),
        (JWT.replace("audience: us, ", "") % "claim: sub", "audience"),
        (JWT.replace("us", "''") % "claim: sub", r"jwt\.audience"),
        (JWT.replace("'https://i'", '"https://i\' or TRUE"') % "claim: sub", r"jwt\.issuer"),
        (JWT.replace("https://i/keys", "http://i/keys") % "claim: sub", r"jwt\.jwksUrl"),
        (JWT.replace("https://i/keys", "file:///keys") % "claim: sub", r"jwt\.jwksUrl"),
        (JWT.replace("https://i/keys", "https://user:secret@i/keys") % "claim: sub", r"jwksUrl: it contains a user"),
        (JWT.replace("https://i/keys", "https://secret@i") % "claim: sub", r"Remove everything before the @\.\Z"),
        (JWT % 'claim: "sub\') if TRUE"', r"jwt\.claim"),
        (JWT % "algorithms: []", "algorithms"),
        (JWT % "algorithms: [HS256]", "algorithms"),
        (JWT % "algorithms: [none]", "algorithms"),
        (JWT % "ca: none", r"jwt\.ca"),
    ],
)
def test_an_identity_provider_that_cannot_be_used_is_refused(tmp_path: Path, text: str, field: str) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(text)
    with pytest.raises(InvalidSettingsError, match=field):
        load_settings(file)


def test_an_identity_provider(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(JWT % "claim: realm.client-id, algorithms: [ES256]")
    assert load_settings(file).jwt == Jwt("https://i", "us", "https://i/keys", "realm.client-id", ("ES256",))
