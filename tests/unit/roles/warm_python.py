"""A Python for modules that has loaded the Kubernetes client already, which takes longer than most of them run.

A process loads the client once and forks for each module. The program `python` in its folder is to Ansible an
interpreter like any other: it hands its arguments, folder, environment and open files to a fork and ends as that does.
With options it becomes Python itself.

As a program it serves the socket that is named, until its standard input ends.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NoReturn

_CLIENT = """#!{python} -IS
import json, os, socket, sys
if sys.argv[1:] and sys.argv[1].startswith("-"):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
    server.connect({socket!r})
    asked = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [b"%{length}d" % len(asked)], [0, 1, 2])
    server.sendall(asked)
    status = server.recv(8)
sys.exit(int(status or 1))
"""
_LENGTH = 16
"""Bytes that say how long what follows is."""


@cache
def warm_python(folder: Path) -> str:
    """Path of the interpreter, which is made and served in this folder for as long as this process lives."""
    folder.mkdir()
    program, path = folder / "python", folder / "socket"
    program.write_text(_CLIENT.format(python=sys.executable, socket=str(path), length=_LENGTH))
    program.chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, "-I", __file__, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdout.readline()
    atexit.register(server.communicate)
    return str(program)


def _serve(path: str) -> None:
    for name in ("kubernetes.client", "kubernetes.config", "kubernetes.dynamic", "yaml"):
        import_module(name)

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(64)
        print(flush=True)
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            connection, _address = listener.accept()
            if os.fork() == 0:
                _run(connection)
            connection.close()


def _run(connection: socket.socket) -> NoReturn:
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        length, files, _flags, _address = socket.recv_fds(connection, _LENGTH, 3)
        with connection.makefile("rb") as stream:
            arguments, folder, environment = json.loads(stream.read(int(length)))
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        status = _run_module(arguments)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        connection.sendall(str(status).encode())
        os._exit(status)


def _run_module(arguments: list[str]) -> int:
    """Runs the file that is named first, or what comes from the standard input; returns its exit status."""
    source = Path(arguments[0]).read_text() if arguments else sys.stdin.read()
    sys.argv = arguments or ["-"]
    main = {"__name__": "__main__", "__file__": sys.argv[0]}
    try:
        exec(compile(source, sys.argv[0], "exec"), main)  # noqa: S102  (as an interpreter does)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001  (nobody else tells of it)
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    _serve(sys.argv[1])
