"""Variables of loaders: a password in them is refused, and no output shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cluster_api import ClusterApi
from .rendering import Rendered
from .role_run import run_role


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        ("http://user:secret@proxy:3128", True),
        ("http://:secret@proxy", True),
        ("user:secret@proxy:3128", True),
        ("//user:secret@proxy:3128", True),
        ("http://user@proxy:3128", False),
        ("http://proxy.example.com:3128", False),
        ("proxy:3128", False),
        ("acme:1.0@sha256:0123", False),
        ("http://proxy:3128/a:b@c", False),
    ],
)
def test_a_url_with_a_password_is_recognised(value: str, refused: bool) -> None:
    role = Rendered("controller", controller_loader_env={"HTTPS_PROXY": value, "LEVEL": 3})

    assert role["__controller_env_passwords"] == (["HTTPS_PROXY"] if refused else [])


@pytest.mark.plays
def test_a_password_is_refused_and_never_shown(tmp_path: Path, api: ClusterApi) -> None:
    env = {"HTTPS_PROXY": "http://user:of-the-proxy@proxy:3128", "NO_PROXY": ".svc"}
    output = run_role(tmp_path, api, "controller", "check", "--diff", "-vvv", failing=True, controller_loader_env=env)

    assert "controller_loader_env: the URL in HTTPS_PROXY has a password" in output
    assert "of-the-proxy" not in output
    assert api.objects == {}
