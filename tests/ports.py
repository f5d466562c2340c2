"""Ports of this machine for servers that start later: nobody gets them in between, or while such a server is away."""

from __future__ import annotations

import socket

_kept: list[socket.socket] = []


def reserved_port() -> int:
    """A port of 127.0.0.1, kept until this process ends.

    Whoever asks the kernel for any port, or connects somewhere, never gets one that is bound. A server that names it
    gets it though, as servers may share an address with a socket that does not listen (SO_REUSEADDR on both).
    """
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind(("127.0.0.1", 0))
    _kept.append(keeper)
    port: int = keeper.getsockname()[1]
    return port
