"""What HAProxy's memory is spent on, and what fits into a given limit. Pure.

HAProxy's option ``-m`` sets RLIMIT_DATA for the master and for each worker. It counts what a process reserves, not what
it touches, and a body that does not fit an ordinary buffer reserves a whole large one. An allocation that fails breaks
the request that needed it, whoever sent it. So HAProxy must not come near the limit by itself: connections and large
buffers are bounded here such that the limit is only the last line of defence.
"""

from __future__ import annotations

BUFFER = 49152
"""Of HAProxy, in bytes. What fits is sent again when a connection breaks, and costs a third less than a large one."""

SMALL_BUFFER = 8192
"""For the copy of a request that HAProxy keeps until the answer begins. If a request or an answer does not fit a small
buffer, HAProxy copies its whole buffer: at 1 KB that was more than a third of all instructions. HAProxy does not limit
the number of small buffers, so there is room for one with each ordinary buffer. Requests in hops hold one more in each
hop. There can be as many of these as connections (connections.total), and they fit in the tenth that `buffers` leaves
free: measured at 768 MiB, where HAProxy reserved at most 730."""

_MIB = 1 << 20
_PROGRAM = 48 * _MIB
"""What a worker of HAProxy 3.4.7 reserves without threads: measured, as are the two numbers below."""
_THREAD = 10 * _MIB
_LARGE_OF_THREAD = 4.75
"""Large buffers that each thread keeps for itself; hardly touched, but reserved."""
_CONNECTION = _MIB // 10 + 1
"""Bytes that each client needs if it does not read its answer: two buffers and a little more."""
_LEAST_BODIES, _LEAST_BUFFERS = 4, 256


def large_buffer(max_body_bytes: int) -> int:
    """Bytes of a large buffer: larger than the largest body, so that a chunked body is seen to pass the limit."""
    return max_body_bytes + 131072


def minimum_limit(threads: int, max_body_bytes: int) -> int:
    """The least limit in bytes with which HAProxy starts and can read a few large bodies at a time."""
    large = large_buffer(max_body_bytes)
    return (_reserved_bytes(threads, large) + _LEAST_BODIES * large) * 4 // 3


def max_buffers(threads: int, max_body_bytes: int, limit: int) -> int:
    """How many ordinary buffers may be in use; 0 without a limit. Who needs one more waits until another is free."""
    if not limit:
        return 0
    large = large_buffer(max_body_bytes)
    room = limit * 9 // 10 - _reserved_bytes(threads, large) - _LEAST_BODIES * large
    return max(_LEAST_BUFFERS, room // (BUFFER + SMALL_BUFFER))


def max_connections(maximum: int, threads: int, max_body_bytes: int, limit: int) -> int:
    """How many clients may be connected: `most`, or as many as `limit` bytes (0: no limit) have a buffer for.

    Slow clients and requests in hops need more: connections.py leaves buffers to other addresses.
    """
    return min(maximum, max_buffers(threads, max_body_bytes, limit), limit // _CONNECTION) if limit else maximum


def buffer_budget(threads: int, max_body_bytes: int, limit: int) -> int:
    """Bytes that buffers in use may have before no further large one is given out; 0 without a limit.

    What is left to all else serves small requests whatever large ones there are.
    """
    return limit * 3 // 4 - _reserved_bytes(threads, large_buffer(max_body_bytes)) if limit else 0


def _reserved_bytes(threads: int, large: int) -> int:
    return _PROGRAM + threads * (_THREAD + int(_LARGE_OF_THREAD * large))
