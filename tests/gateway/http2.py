"""The part of HTTP/2 that a hostile client needs: one connection with streams that do not end. No Huffman coding."""

from __future__ import annotations

import socket
import struct
import time

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_END_HEADERS, _END_STREAM, _ACK = 4, 1, 1
_MAX_CONCURRENT_STREAMS, _INITIAL_WINDOW_SIZE = 3, 4
_FRAME = 16384


def _literal(name: bytes, value: bytes) -> bytes:
    """A header field as HPACK's literal without indexing; both parts shorter than 127 bytes."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


class Connection:
    """Connects to a loopback port. `limit`: streams that the server allows at once; `refused`: streams it has reset."""

    def __init__(self, port: int, patience: float, address: str = "127.0.0.1") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=patience, source_address=(address, 0))
        self._socket.sendall(_PREFACE + self._frame(_SETTINGS, 0, 0, b""))
        self._buffer = b""
        self._window, self._initial = 65535, 65535
        self._windows: dict[int, int] = {}
        self._last = -1
        self.limit = 0
        self.refused: set[int] = set()
        self.ended = False
        self._patience = patience
        self._pings = 0
        while not (self.limit or self.ended):
            self.read()

    def close(self) -> None:
        self._socket.close()

    def post(self, path: str, length: int) -> int:
        """Begins a request that announces a body of `length` bytes. Returns its stream."""
        self._last += 2
        fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "a", "content-length": str(length)}
        block = b"".join(_literal(name.encode(), value.encode()) for name, value in fields.items())
        self._windows[self._last] = self._initial
        self._socket.sendall(self._frame(_HEADERS, _END_HEADERS, self._last, block))
        return self._last

    def send(self, stream: int, data: bytes, *, end: bool = False) -> int:
        """Sends as much as the windows allow, as the end of the body if all fits. Returns the number of sent bytes."""
        room = min(len(data), self._window, self._windows.get(stream, 0), _FRAME)
        if room <= 0 or stream in self.refused or self.ended:
            return 0
        self._window -= room
        self._windows[stream] -= room
        try:
            flags = _END_STREAM if end and room == len(data) else 0
            self._socket.sendall(self._frame(_DATA, flags, stream, data[:room]))
        except OSError:
            self.ended = True
            return 0
        return room

    def ping(self) -> None:
        """Returns when the server has read all that was sent. Raises RuntimeError if it does not in time."""
        deadline = time.monotonic() + self._patience
        self._pings += 1
        self._socket.sendall(self._frame(_PING, 0, 0, bytes(8)))
        while self._pings and not self.ended:
            if time.monotonic() > deadline:
                raise RuntimeError("The server did not answer a ping.")
            self.read()

    def read(self, seconds: float = 0.2) -> None:
        """Processes received frames."""
        self._socket.settimeout(seconds)
        try:
            more = self._socket.recv(1 << 16)
        except TimeoutError:
            return
        except OSError:
            more = b""
        self.ended = self.ended or not more
        self._buffer += more
        while len(self._buffer) >= 9:
            size = int.from_bytes(self._buffer[:3], "big")
            if len(self._buffer) < 9 + size:
                return
            kind, flags = self._buffer[3], self._buffer[4]
            stream = int.from_bytes(self._buffer[5:9], "big") & 0x7FFFFFFF
            payload, self._buffer = self._buffer[9 : 9 + size], self._buffer[9 + size :]
            self._take(kind, flags, stream, payload)

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            settings = dict(struct.unpack(">HI", payload[at : at + 6]) for at in range(0, len(payload), 6))
            self._initial = settings.get(_INITIAL_WINDOW_SIZE, self._initial)
            self.limit = settings.get(_MAX_CONCURRENT_STREAMS, 1 << 31)
            self._socket.sendall(self._frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _WINDOW_UPDATE:
            more = int.from_bytes(payload, "big")
            if stream:
                self._windows[stream] = self._windows.get(stream, 0) + more
            else:
                self._window += more
        elif kind == _RST_STREAM:
            self.refused.add(stream)
        elif kind == _PING and flags & _ACK:
            self._pings -= 1
        elif kind == _GOAWAY:
            self.ended = True

    @staticmethod
    def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
