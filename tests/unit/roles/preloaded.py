"""ansible-playbook without its start, which takes longer than most plays of the tests do.

A process loads Ansible once and forks for each play, so that each has a process, a folder and an environment of its
own, as if ansible-playbook had been called there. Only what Ansible reads from the environment while it is loaded is
the same for all: its home, where its collections are, which callback writes its output, and in which colours.

As a program it reads plays from its standard input, a line of JSON each, and writes the output and exit status of each.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import traceback
from functools import cache
from typing import IO, NamedTuple, NoReturn


class Play(NamedTuple):
    """``arguments``: of ansible-playbook. ``folder``: where it runs. ``output``: the file that takes what it says.
    ``environment``: all of it. ``seconds``: when it is ended."""

    arguments: list[str]
    folder: str
    output: str
    environment: dict[str, str]
    seconds: int


class Preloaded:
    """The process that runs plays, one after the other. It ends with the one that started it."""

    def __init__(self, folder: str, environment: dict[str, str]) -> None:
        """``folder``: where Ansible is loaded, and reads an ansible.cfg. ``environment``: its variables, in addition to
        the user's home and language."""
        kept = {name: os.environ[name] for name in ("HOME", "LANG", "LC_ALL") if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__],
            cwd=folder,
            env={**kept, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self.close)

    def close(self) -> None:
        """Ends the process: it has no plays to wait for any more."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def run(self, play: Play) -> int:
        """The exit status of the play; negative when a signal ended it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(play._asdict()), file=self._process.stdin, flush=True)
        while True:  # a test that was ended has left an answer behind
            output, status = json.loads(self._process.stdout.readline())
            if output == play.output:
                return int(status)


@cache
def preloaded(folder: str, *environment: tuple[str, str]) -> Preloaded:
    """The one that was loaded there, in this environment."""
    return Preloaded(folder, dict(environment))


def _serve(plays: IO[str], answers: IO[str]) -> None:
    import ansible.cli.playbook  # noqa: F401  (before the first play, which else would have to)

    for line in plays:
        play = Play(**json.loads(line))
        child = os.fork()
        if child == 0:
            _run(play)
        _pid, status = os.waitpid(child, 0)
        print(json.dumps([play.output, os.waitstatus_to_exitcode(status)]), file=answers, flush=True)


def _run(play: Play) -> NoReturn:
    """Does it in this process, and ends that without what is to be done when the other one ends."""
    from ansible.cli.playbook import PlaybookCLI

    status = 1
    try:
        _move(play)
        PlaybookCLI.cli_executor(["ansible-playbook", *play.arguments])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001  (nothing else reports it)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _move(play: Play) -> None:
    signal.alarm(play.seconds)
    os.chdir(play.folder)
    os.environ.clear()
    os.environ.update(play.environment)
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(play.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for old, new in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(old, new)


if __name__ == "__main__":
    _serve(sys.stdin, sys.stdout)
