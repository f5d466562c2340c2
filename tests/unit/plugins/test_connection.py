# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ways to the API server: what kubeconfigs and the environment say, TLS, proxies, and connections that are kept."""

from __future__ import annotations

import base64
import http.client
import json
import os
import resource
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import krypton_models as krypton
import pytest
from ansible_collections.slipway.inference.plugins.module_utils import _auth, _official, _settings
from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError
from ansible_collections.slipway.inference.plugins.module_utils._http import HttpConnection
from ansible_collections.slipway.inference.plugins.module_utils._kubeconfig import Pem
from ansible_collections.slipway.inference.plugins.module_utils._settings import Settings, bypasses
from fake_api import FakeApi
from kubeconfigs import kubeconfig
from module_run import Run

NOWHERE: dict[str, Any] = {"host": None, "api_key": None}
BY_PROGRAM = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": sys.executable}


def resolve(config: dict[str, Any], **options: Any) -> Settings:
    settings = _settings.resolve({"kubeconfig": config, "context": "one", **options}, {})
    assert settings is not None
    return settings


def get(connection: Any, target: str = "/x", seconds: float = 60) -> Any:
    return connection.request("GET", target, {"Accept": "application/json"}, None, seconds, streamed=False)


# ---- kubeconfigs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        ({}, {"token": "a-token"}),
        ({}, {"token": "a-token", "username": "u", "password": "p"}),
        ({}, {"username": "u", "password": "p"}),
        ({}, {"username": "u"}),
        ({"insecure-skip-tls-verify": True}, {"tokenFile": "token"}),
        ({"certificate-authority": "ca"}, {"client-certificate": "cert", "client-key": "key"}),
        ({"certificate-authority-data": "Y2E="}, {"client-certificate-data": "Y2VydA==", "client-key-data": "a2V5"}),
        ({"certificate-authority-data": "Y2E=", "certificate-authority": "none"}, {"token": "a-token"}),
        ({"certificate-authority-data": "Y2E="}, {"client-certificate-data": "Y2VydA==", "client-key": "key"}),
    ],
)
def test_a_kubeconfig_means_what_the_official_client_makes_of_it(
    cluster: dict[str, Any], user: dict[str, Any], tmp_path: Path
) -> None:
    for name in ("token", "ca", "cert", "key"):
        (tmp_path / name).write_text(name)
    path = tmp_path / "config"
    path.write_text(json.dumps(kubeconfig("https://127.0.0.1:6443/", cluster, **user)))
    auth = {"kubeconfig": str(path), "context": "one"}
    ours, theirs = _auth.connect(auth, {}), _official.connect(auth)
    assert isinstance(ours, HttpConnection)
    assert ours.host == theirs.host
    assert ours.headers() == theirs.headers()
    settings, configuration = _settings.resolve(auth, {}), theirs._configuration
    assert settings is not None
    assert settings.validate == configuration.verify_ssl
    for pem, file in (
        (settings.authority, configuration.ssl_ca_cert),
        (settings.certificate, configuration.cert_file),
        (settings.key, configuration.key_file),
    ):
        content = pem.data or (Path(pem.path).read_bytes() if pem.path else b"")
        assert content == (Path(file).read_bytes() if file else b"")


@pytest.mark.parametrize("user", [{"exec": {"command": "x"}}, {"auth-provider": {"name": "oidc"}}])
def test_users_of_other_programs_are_left_to_the_official_client(user: dict[str, Any]) -> None:
    config = kubeconfig("https://h", **user)
    assert _settings.resolve({"kubeconfig": config, "context": "one"}, {}) is None


@pytest.mark.parametrize("proxy", ["https://proxy:3128", "socks5://proxy:1080"])
def test_rare_proxies_are_left_to_the_official_client(proxy: str) -> None:
    assert _settings.resolve({"host": "https://h", "api_key": "k", "proxy": proxy}, {}) is None


def test_the_token_of_an_exec_plugin_is_used(api: FakeApi, run: Run) -> None:
    status = {"apiVersion": BY_PROGRAM["apiVersion"], "kind": "ExecCredential", "status": {"token": "of-a-program"}}
    plugin = {**BY_PROGRAM, "args": ["-c", f"print({json.dumps(json.dumps(status))})"], "env": None}
    assert not run("model_info", **NOWHERE, kubeconfig=kubeconfig(api.url, exec=plugin), context="one").failed
    assert api.calls[-1].headers["Authorization"] == "Bearer of-a-program"


def test_by_the_official_client_objects_are_applied_and_waited_for(api: FakeApi, run: Run) -> None:
    status = {"apiVersion": BY_PROGRAM["apiVersion"], "kind": "ExecCredential", "status": {"token": "of-a-program"}}
    plugin = {**BY_PROGRAM, "args": ["-c", f"print({json.dumps(json.dumps(status))})"], "env": None}
    way = {**NOWHERE, "kubeconfig": kubeconfig(api.url, exec=plugin), "context": "one"}
    api.once("watch", lambda: api.set_status(krypton.PATH + "a", **krypton.READY))
    assert not run("model", **way, name="a", namespace="models", spec=krypton.SPEC).failed
    assert [call.verb for call in api.calls] == ["get", "apply", "watch"]
    refused = run("model", **way, name="a", namespace="none", spec=krypton.SPEC)
    assert refused["error_code"] == "namespace_missing"


def test_without_the_official_client_tokens_are_enough(
    api: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("kubernetes", "kubernetes.client", "kubernetes.client.rest", "urllib3", "requests"):
        monkeypatch.setitem(sys.modules, name, None)
    path = tmp_path / "config"
    path.write_text(json.dumps(kubeconfig(api.url)))
    assert not run("model_info").failed
    assert not run("model_info", **NOWHERE, kubeconfig=str(path), context="one").failed


def test_each_kubeconfig_adds_entries_that_earlier_ones_lack(tmp_path: Path) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder, server in zip(folders, ("https://first", "https://second"), strict=True):
        folder.mkdir()
        (folder / "ca").write_text(server)
        config = kubeconfig(server, {"certificate-authority": "ca"})
        config["contexts"].append({"name": folder.name, "context": {"cluster": "c", "user": "u"}})
        (folder / "config").write_text(json.dumps({**config, "current-context": folder.name}))
    paths = os.pathsep.join(str(folder / "config") for folder in (tmp_path / "none", *folders))
    settings = _settings.resolve({}, {"KUBECONFIG": paths})
    assert settings is not None
    assert (settings.host, settings.authority) == ("https://first", Pem(str(folders[0] / "ca")))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"current-context": "none"}, " has no context 'none'. Did you mean one?"),
        ({"current-context": "x"}, " has no context 'x'. It has one, two."),
        ({"clusters": []}, " has no cluster 'd', which its context two names. It has no clusters."),
        ({"clusters": {}, "contexts": "x"}, ": contexts is not a list."),
        ({"users": ["u"]}, ": one of its users is not a mapping."),
        ({"users": [{}]}, ": one of its users has no name."),
        ({"current-context": None}, " sets no current-context, and the task sets no context."),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_says_which_it_is_and_why(
    change: dict[str, Any], text: str, tmp_path: Path
) -> None:
    content = {**kubeconfig("https://h"), **change}
    (tmp_path / "config").write_text(json.dumps(content))
    for given, name in ((content, "The kubeconfig in the task"), (str(tmp_path / "config"), f"{tmp_path}/config")):
        with pytest.raises(InferenceError) as raised:
            _settings.resolve({"kubeconfig": given}, {})
        assert raised.value.code == "no_connection_details"
        assert raised.value.message == f"No usable kubeconfig: {name}{text}"


def test_a_kubeconfig_that_is_not_there_is_named() -> None:
    with pytest.raises(InferenceError) as raised:
        _settings.resolve({}, {"KUBECONFIG": "/nowhere/config:/nowhere/else"})
    assert raised.value.message == "No usable kubeconfig: /nowhere/config and /nowhere/else: file not found."


@pytest.mark.parametrize("content", [None, b"\xff"])
def test_a_file_of_a_token_that_cannot_be_read_is_reported(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "token").write_bytes(content)
    with pytest.raises(InferenceError) as raised:
        resolve(kubeconfig("https://h", tokenFile=str(tmp_path / "token")))
    assert raised.value.code == "no_connection_details"


@pytest.mark.parametrize("content", ["", "a: [", "\udcff", "- a"])
def test_a_file_that_is_no_kubeconfig_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(InferenceError) as raised:
        _settings.resolve({"kubeconfig": str(path)}, {})
    assert raised.value.code == "no_connection_details"
    assert str(path) in raised.value.message


def test_the_secrets_of_a_broken_kubeconfig_are_not_shown() -> None:
    config = kubeconfig("https://h", **{"client-key-data": "no base64: 1", "token": "a-long-token"})
    with pytest.raises(InferenceError) as raised:
        resolve(config)
    assert "no base64" not in str(raised.value)


def test_options_come_before_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("x")
    cluster = {"insecure-skip-tls-verify": True, "certificate-authority": str(tmp_path / "ca"), "proxy-url": "http://p"}
    config = kubeconfig("https://h", {**cluster, "tls-server-name": "name"})
    settings = resolve(config)
    assert (settings.validate, settings.proxy, settings.tls_server_name) == (False, "http://p", "name")
    assert settings.authority == Pem(str(tmp_path / "ca"))
    settings = resolve(config, host="https://i", validate_certs=True, ca_cert="/ca", proxy="http://q", api_key="k")
    assert (settings.host, settings.validate, settings.proxy) == ("https://i", True, "http://q")
    assert (settings.authority, settings.authorization.header()) == (Pem("/ca"), "Bearer k")


def test_a_token_that_was_replaced_in_its_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    authorization = resolve(kubeconfig("https://h", tokenFile=str(path))).authorization
    path.write_text("second\n")
    assert authorization.header() == "Bearer first"
    monkeypatch.setattr(_settings, "TOKEN_SECONDS", -1.0)
    assert authorization.header() == "Bearer second"
    path.unlink()
    assert authorization.header() == "Bearer second"


def test_a_token_that_no_header_may_have_is_not_shown(api: FakeApi, run: Run) -> None:
    result = run("model_info", api_key="two\nlines-of-secrets")
    assert result["error_code"] == "invalid_input"
    assert "Authorization" in result["msg"]
    assert "lines-of-secrets" not in str(result.data)


# ---- proxies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        ({}, ""),
        ({"HTTPS_PROXY": "http://p"}, "http://p"),
        ({"https_proxy": "http://p", "HTTPS_PROXY": "http://q"}, "http://p"),
        ({"HTTP_PROXY": "http://p"}, ""),
        ({"ALL_PROXY": "http://p"}, "http://p"),
        ({"HTTPS_PROXY": "http://p", "NO_PROXY": "example.org"}, ""),
        ({"HTTPS_PROXY": "http://p", "NO_PROXY": "example.com"}, "http://p"),
    ],
)
def test_the_proxy_of_the_environment_is_used(environment: dict[str, str], proxy: str) -> None:
    settings = _settings.resolve({"host": "https://api.example.org", "api_key": "k"}, environment)
    assert settings is not None
    assert settings.proxy == proxy


@pytest.mark.parametrize(
    ("host", "no_proxy", "expected"),
    [
        ("https://a.example.org:6443", "example.org", True),
        ("https://a.example.org:6443", ".example.org", True),
        ("https://a.example.org:6443", "a.example.org:6443", True),
        ("https://a.example.org:6443", "a.example.org:443", False),
        ("https://an-example.org", "example.org", False),
        ("https://10.1.2.3:6443", "10.0.0.0/8, b", True),
        ("https://10.1.2.3", "11.0.0.0/8", False),
        ("https://[::1]:6443", "::1", True),
        ("https://h", "*", True),
        ("https://h", " , ", False),
    ],
)
def test_no_proxy_names_hosts_domains_and_networks(host: str, no_proxy: str, expected: bool) -> None:
    assert bypasses(host, no_proxy) is expected


class Proxy(ThreadingHTTPServer):
    """An HTTP proxy that connects to wherever it is asked to, or refuses."""

    daemon_threads = True

    def __init__(self, refuses: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _ProxyHandler)
        self.refuses = refuses
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.to: int = 0
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


class _ProxyHandler(BaseHTTPRequestHandler):
    def do_CONNECT(self) -> None:
        assert isinstance(self.server, Proxy)
        self.server.asked.append((self.path, dict(self.headers)))
        if self.server.refuses:
            self.send_error(407)
            return
        with socket.create_connection(("127.0.0.1", self.server.to)) as upstream:
            self.send_response(200)
            self.end_headers()
            threading.Thread(target=_pipe, args=(self.connection, upstream), daemon=True).start()
            _pipe(upstream, self.connection)

    def log_message(self, *_arguments: Any) -> None:
        pass


def _pipe(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
    except OSError:
        pass


# ---- TLS -------------------------------------------------------------------------------------------------------------


class TlsApi(ThreadingHTTPServer):
    """Answers over TLS with the request line and what identified the client; ``port``."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), _TlsHandler)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.connections = 0
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server_port}"

    def handle_error(self, _request: Any, _address: Any) -> None:
        pass


class _TlsHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        self.request.do_handshake()
        super().setup()
        assert isinstance(self.server, TlsApi)
        self.server.connections += 1

    def do_GET(self) -> None:
        certificate: Any = self.connection.getpeercert()  # type: ignore[attr-defined]
        name = dict(pair for part in (certificate or {}).get("subject", ()) for pair in part).get("commonName")
        body = json.dumps({"path": self.path, "user": name, "headers": dict(self.headers)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        if self.path == "/last":
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, and certificates with keys by it of a server and of a client."""
    folder = tmp_path_factory.mktemp("pki")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=300)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    usage = ("-addext", "keyUsage=critical,keyCertSign")
    openssl("req", "-x509", *key, "-subj", "/CN=authority", *usage, "-keyout", "ca.key", "-out", "ca.pem")
    names = {"server": "IP:127.0.0.1,DNS:api.example.org", "client": "DNS:client"}
    for name, others in names.items():
        openssl("req", *key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        identifiers = "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid"
        (folder / "extensions").write_text(f"subjectAltName={others}\n{identifiers}\n")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "extensions")
        openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")
    return folder


@pytest.fixture
def server(pki: Path) -> Iterator[TlsApi]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "server.pem", pki / "server.key")
    context.load_verify_locations(pki / "ca.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    tls_api = TlsApi(context)
    yield tls_api
    tls_api.shutdown()
    tls_api.server_close()


def base64_of(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def of_client(pki: Path) -> dict[str, str]:
    files = {"certificate": "client.pem", "key": "client.key"}
    return {f"client-{part}-data": base64_of(pki / file) for part, file in files.items()}


def test_a_client_certificate_in_the_kubeconfig_identifies(server: TlsApi, pki: Path, tmp_path: Path) -> None:
    cluster = {"certificate-authority-data": base64_of(pki / "ca.pem")}
    for user in (
        {
            f"client-{key}-data": base64_of(pki / f"client.{end}")
            for key, end in (("certificate", "pem"), ("key", "key"))
        },
        {"client-certificate": str(pki / "client.pem"), "client-key": str(pki / "client.key")},
    ):
        reply = json.loads(get(HttpConnection(resolve(kubeconfig(server.url, cluster, **user)))).body)
        assert reply["user"] == "client"
        assert reply["headers"]["User-Agent"] == "slipway.inference"


def test_keys_of_a_kubeconfig_stay_on_no_disk(
    server: TlsApi, pki: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    user = {
        f"client-{key}-data": base64_of(pki / f"client.{end}") for key, end in (("certificate", "pem"), ("key", "key"))
    }
    cluster = {"certificate-authority-data": base64_of(pki / "ca.pem")}
    get(HttpConnection(resolve(kubeconfig(server.url, cluster, **user))))
    assert not list(tmp_path.iterdir())


def test_the_name_of_a_certificate_is_checked(server: TlsApi, pki: Path) -> None:
    ca = Pem(str(pki / "ca.pem"))
    by_name = server.url.replace("127.0.0.1", "localhost")
    with pytest.raises(InferenceError) as raised:
        get(HttpConnection(Settings(by_name, authority=ca)))
    assert raised.value.code == "certificate"
    assert get(HttpConnection(Settings(by_name, authority=ca, tls_server_name="api.example.org"))).status == 200
    assert get(HttpConnection(Settings(by_name, validate=False))).status == 200


@pytest.mark.parametrize("authority", ["none.pem", "client.key"])
def test_an_authority_that_cannot_be_read_is_named(server: TlsApi, pki: Path, authority: str) -> None:
    with pytest.raises(InferenceError) as raised:
        get(HttpConnection(Settings(server.url, authority=Pem(str(pki / authority)))))
    assert raised.value.code == "certificate"


def test_a_proxy_leads_to_a_server_with_tls(server: TlsApi, pki: Path) -> None:
    proxy = Proxy()
    proxy.to = server.server_port
    auth = {
        "host": "https://api.example.org:6443",
        "api_key": "a-token",
        "ca_cert": str(pki / "ca.pem"),
        "proxy": f"http://127.0.0.1:{proxy.server_port}",
        "proxy_headers": {"proxy_basic_auth": "me:secret", "user_agent": "agent", "basic_auth": None},
    }
    reply = json.loads(get(_auth.connect(auth, {})).body)
    [(place, headers)] = proxy.asked
    proxy.shutdown()
    assert place == "api.example.org:6443"
    assert headers["Proxy-Authorization"] == "Basic " + base64.b64encode(b"me:secret").decode()
    assert "a-token" not in str(headers)
    assert reply["headers"]["Host"] == "api.example.org:6443"
    assert reply["headers"]["Authorization"] == "Bearer a-token"
    assert "Proxy-Authorization" not in reply["headers"]


def test_a_proxy_that_refuses_is_reported() -> None:
    proxy = Proxy(refuses=True)
    settings = Settings("https://api.example.org", proxy=f"http://127.0.0.1:{proxy.server_port}")
    with pytest.raises(InferenceError) as raised:
        get(HttpConnection(settings))
    proxy.shutdown()
    assert raised.value.code == "unreachable"
    assert "407" in raised.value.message


# ---- connections -----------------------------------------------------------------------------------------------------


def test_a_connection_is_used_again_until_the_server_closes_it(server: TlsApi, pki: Path) -> None:
    connection = HttpConnection(Settings(server.url, authority=Pem(str(pki / "ca.pem"))))
    assert [get(connection).status for _time in range(3)] == [200] * 3
    assert server.connections == 1
    assert [get(connection, path).status for path in ("/last", "/x", "/x")] == [200] * 3
    assert server.connections == 2


def test_a_connection_is_used_again_though_many_files_are_open(server: TlsApi, pki: Path) -> None:
    before = server.connections
    with ExitStack() as files:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        while files.enter_context(open(os.devnull)).fileno() < 1024:
            pass
        connection = HttpConnection(Settings(server.url, authority=Pem(str(pki / "ca.pem"))))
        assert [get(connection).status for _time in range(3)] == [200] * 3
    assert server.connections == before + 1


def test_a_connection_that_the_server_closed_meanwhile_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(60)
    closed = threading.Event()

    def serve() -> None:
        for _time in range(2):
            peer, _address = listener.accept()
            with peer:
                peer.recv(1 << 16)
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            closed.set()

    threading.Thread(target=serve, daemon=True).start()
    connection = HttpConnection(Settings(f"http://127.0.0.1:{listener.getsockname()[1]}"))
    assert get(connection).status == 200
    assert closed.wait(60)
    assert get(connection).status == 200
    listener.close()


def test_a_path_before_the_api_is_kept(server: TlsApi, pki: Path) -> None:
    settings = Settings(f"{server.url}/k8s/clusters/c-1/", authority=Pem(str(pki / "ca.pem")))
    reply = json.loads(get(HttpConnection(settings), "/api/a name?x=%2C").body)
    assert reply["path"] == "/k8s/clusters/c-1/api/a%20name?x=%2C"


@pytest.mark.parametrize("host", ["ftp://h", "http://h:x", "https://[::1", "http://a..b"])
def test_an_address_that_none_can_have_is_reported(host: str) -> None:
    with pytest.raises(InferenceError) as raised:
        get(_auth.connect({"host": host, "api_key": "k"}, {}), seconds=1)
    assert raised.value.code == "unreachable"


@pytest.mark.parametrize("proxy", ["", "http://proxy:3128"])
def test_an_unsupported_scheme_is_reported_with_the_supported_ones(proxy: str) -> None:
    with pytest.raises(InferenceError) as raised:
        get(HttpConnection(Settings("htps://user:a-secret@h:6443/k8s", proxy=proxy)))
    message = "Unsupported URL scheme 'htps' in htps://h:6443/k8s. Use https or http."
    assert (raised.value.code, str(raised.value), raised.value.transient) == ("unreachable", message, False)


@pytest.mark.parametrize("host", ["http://user:a-secret@a..b", "user:a-secret@a..b", "http://user:a-secret@h:x"])
def test_credentials_in_an_address_are_not_shown(host: str) -> None:
    with pytest.raises(InferenceError, match=" cannot be reached: ") as raised:
        get(HttpConnection(Settings(host)))
    assert "secret" not in str(raised.value)
    assert "user" not in str(raised.value)


def test_an_answer_that_is_cut_is_reported() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(60)

    def serve() -> None:
        peer, _address = listener.accept()
        with peer:
            peer.recv(1 << 16)
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{}")

    threading.Thread(target=serve, daemon=True).start()
    with pytest.raises(InferenceError) as raised:
        get(HttpConnection(Settings(f"http://127.0.0.1:{listener.getsockname()[1]}")))
    listener.close()
    assert (raised.value.code, raised.value.transient) == ("unreachable", True)
    assert isinstance(raised.value.__cause__, http.client.IncompleteRead)
