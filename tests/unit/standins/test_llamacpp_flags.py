"""The table of retired flags as the real llama-server sees it: it has the successors, and none of the flags.

Needs Docker and the image of the engine (`make docker` and the local cluster's images give both).
"""

from __future__ import annotations

import subprocess

import pytest

from slipway.engines.definition.retired import renewed
from slipway.engines.programs.llamacpp import LLAMACPP

IMAGE = "ghcr.io/ggml-org/llama.cpp:server-v0.5.0"
LOOP = """\
while read -r words; do
  if /app/llama-server $words --version >/dev/null 2>&1; then echo "taken $words"; else echo "refused $words"; fi
done
"""


def taken(lines: list[str]) -> list[str]:
    """Those of the command lines that llama-server accepts."""
    command = ["docker", "run", "--rm", "--interactive", "--network", "none", "--entrypoint", "/bin/sh", IMAGE]
    text = "\n".join(lines) + "\n"
    done = subprocess.run([*command, "-c", LOOP], input=text, capture_output=True, text=True, check=False, timeout=180)
    if done.returncode:
        pytest.fail(f"docker run: {done.stderr.strip()}")
    answers = dict(line.split(" ", 1)[::-1] for line in done.stdout.splitlines())
    assert list(answers) == list(dict.fromkeys(lines))
    return [line for line in lines if answers[line] == "taken"]


def test_llama_server_has_the_successors_and_none_of_the_retired_flags() -> None:
    before = [f"{row.flag} 1" if row.takes == "value" and not row.by_value else row.flag for row in LLAMACPP.retired]
    now = [" ".join(renewed(line.split(), LLAMACPP.retired).args) for line in before]
    assert taken(before) == []
    assert taken([line for line in now if line]) == [line for line in now if line]
