# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the tests of the plugins share. They run under plain pytest and under ansible-test units."""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent


sys.path.insert(0, str(HERE))
sys.path.append(str(HERE.parents[2]))

from importable import make_importable  # noqa: E402

make_importable()

from fake_api import FakeApi  # noqa: E402
from module_run import Result, Run  # noqa: E402

Object = dict[str, Any]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    """A running API server without any requests so far, and an environment that knows no other."""
    proxies = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
    for name in ("K8S_AUTH_KUBECONFIG", "KUBECONFIG", "K8S_AUTH_HOST", "K8S_AUTH_API_KEY", *proxies):
        monkeypatch.delenv(name, raising=False)
    server = FakeApi()
    yield server
    server.stop()


@pytest.fixture
def run(api: FakeApi, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a module in this process against `api`: ``run("model", check=False, diff=True, name=...)``.

    A module that runs on a ``node`` speaks to no cluster.
    """

    _as_on_a_target(monkeypatch)

    def call(
        module: str,
        /,
        *,
        check: bool = False,
        diff: bool = True,
        node: bool = False,
        verbosity: int = 1,
        **options: Any,
    ) -> Result:
        cluster = {} if node else {"host": api.url, "api_key": "the-api-key"}
        arguments = {
            **cluster,
            # A test that waits in vain fails soon.
            **({"wait_timeout": 60} if not module.endswith("_info") else {}),
            **options,
            "_ansible_check_mode": check,
            "_ansible_diff": diff,
            "_ansible_verbosity": verbosity,
            "_ansible_remote_tmp": tempfile.gettempdir(),
            "_ansible_keep_remote_files": False,
        }
        main = importlib.import_module(f"ansible_collections.slipway.inference.plugins.modules.{module}").main
        capsys.readouterr()
        with _arguments(arguments, monkeypatch), pytest.raises(SystemExit):
            main()
        data = json.loads(capsys.readouterr().out)
        return Result(bool(data.get("failed")), data)

    return call


def _as_on_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules give their warnings to the display where a test of a filter has loaded Ansible's controller (2.19)."""
    try:
        from ansible.module_utils import _internal
    except ImportError:
        return
    monkeypatch.setattr(_internal, "is_controller", False, raising=False)


def _arguments(arguments: Object, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Hands arguments to the next AnsibleModule; the way to do so has changed with ansible-core 2.19."""
    try:
        from ansible.module_utils.testing import patch_module_args
    except ImportError:
        import contextlib

        from ansible.module_utils import basic

        monkeypatch.setattr(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode())
        return contextlib.nullcontext()
    return patch_module_args(arguments)
