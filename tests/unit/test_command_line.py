"""The command line: what ``slipway`` and its commands say of themselves."""

from __future__ import annotations

import importlib
import re
import sys

import pytest

from slipway import __main__ as program
from slipway import __version__

SUBCOMMANDS = [("loader", name) for name in ("load", "stage", "inspect", "probe", "evict", "serve")]


def run(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["slipway", *arguments])
    return program.main()


def test_the_version_is_printed_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version", monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


@pytest.mark.parametrize("arguments", [(), ("-h",), ("--help",)])
def test_the_help_names_each_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert run(*arguments, monkeypatch=monkeypatch) == 0
    shown = capsys.readouterr().out
    assert re.findall(r"^  (\w+) ", shown, re.MULTILINE) == list(program.COMMANDS)


def test_an_unknown_command_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("control", monkeypatch=monkeypatch) == 2
    assert "unknown command 'control'" in capsys.readouterr().err


@pytest.mark.parametrize("command", [*((name,) for name in program.COMMANDS), *SUBCOMMANDS], ids=" ".join)
def test_the_help_of_a_command_is_plain_text(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(program.COMMANDS[command[0]][0])
    with pytest.raises(SystemExit) as ended:
        module.main([*command[1:], "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: slipway {' '.join(command)} ")
    assert "`" not in shown
    undescribed = re.findall(r"^  (--?\w[\w-]*(?: [A-Z:]+)?)$(?!\n {5,}\S)", shown, re.MULTILINE)
    assert undescribed == []
