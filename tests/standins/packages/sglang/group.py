"""Several nodes: the leader waits for its workers before it loads, and the group ends as one."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time

SECONDS = 600.0
"""The others are waited for, as by torch's rendezvous."""


def lead(address: str, workers: int) -> None:
    """Returns when all workers are there. The process ends when one of them leaves."""
    port = int(address.rpartition(":")[2])
    listener = socket.create_server(("0.0.0.0", port))
    listener.settimeout(SECONDS)
    joined: set[bytes] = set()
    while len(joined) < workers:
        connection, _address = listener.accept()
        connection.settimeout(None)
        joined.add(connection.recv(16))
        threading.Thread(target=_leave_with, args=(connection, "a worker is gone"), daemon=True).start()
    print(f"{workers} workers have joined", flush=True)


def follow(address: str, rank: int) -> None:
    """A worker: joins its leader, and ends when that is gone."""
    host, _colon, port = address.rpartition(":")
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            connection = socket.create_connection((host, int(port)), timeout=5)
            break
        except OSError as error:
            if time.monotonic() > deadline:
                sys.exit(f"no leader at {address}: {error}")
            time.sleep(0.2)
    connection.settimeout(None)
    connection.sendall(str(rank).encode())
    print(f"rank {rank} has joined {address}", flush=True)
    _leave_with(connection, "the leader is gone")


def _leave_with(connection: socket.socket, why: str) -> None:
    with contextlib.suppress(OSError):
        connection.recv(1)
    print(why, file=sys.stderr, flush=True)
    os._exit(1)
