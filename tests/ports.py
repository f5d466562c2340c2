"""Reserves ports of this machine for servers that start later, or that stop and start again."""

from __future__ import annotations

import random
import socket

_kept: list[socket.socket] = []


def reserved_port() -> int:
    """A port of 127.0.0.1, kept until this process ends.

    The kernel never assigns a bound port to a process that requests any port or opens a connection. A server that
    names the port gets it nevertheless: it can share an address with a socket that does not listen (SO_REUSEADDR on
    both).
    """
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind(("127.0.0.1", 0))
    _kept.append(keeper)
    port: int = keeper.getsockname()[1]
    return port


def quiet_port() -> int:
    """A free port for a server of another program, minutes later: below those that the kernel hands out by itself."""
    for port in random.sample(range(20000, 30000), 1000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise RuntimeError("no port is free")
