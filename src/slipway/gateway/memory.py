"""What HAProxy's memory is spent on, and what fits into a given limit. Pure.

HAProxy's option ``-m`` sets RLIMIT_DATA for the master and for each worker. It counts what a process reserves, not what
it touches, and a body that does not fit an ordinary buffer reserves a whole large one. An allocation that fails breaks
the request that needed it, whoever sent it. So HAProxy must not come near the limit by itself: connections and large
buffers are bounded here such that the limit is only the last line of defence.
"""

from __future__ import annotations

BUFFER = 49152
"""Of HAProxy, in bytes. What fits is sent again when a connection breaks, and costs a third less than a large buffer.
But HAProxy copies the whole buffer of every request, so that twice the size would cost small ones a tenth."""

_MIB = 1 << 20
_PROGRAM = 48 * _MIB
"""What a worker of HAProxy 3.4.7 reserves without threads: measured, as are the two numbers below."""
_THREAD = 10 * _MIB
_LARGE_OF_THREAD = 4.75
"""Large buffers that each thread keeps for itself; hardly touched, but reserved."""
_CONNECTION = 2 * (BUFFER + 2048)
"""A connection that uses a buffer on either side, as HAProxy counts it."""
_LEAST_BODIES = 4


def large_buffer(max_body_bytes: int) -> int:
    """Bytes of a large buffer: larger than the largest body, so that a chunked body is seen to pass the limit."""
    return max_body_bytes + 131072


def least(threads: int, max_body_bytes: int) -> int:
    """The least limit in bytes with which HAProxy starts and can read a few large bodies at a time."""
    large = large_buffer(max_body_bytes)
    return (_reserved(threads, large) + _LEAST_BODIES * large) * 4 // 3


def connections(most: int, limit: int) -> int:
    """How many clients may be connected: `most`, or as many as fit into `limit` bytes (0: no limit)."""
    return min(most, max(100, limit // _CONNECTION)) if limit else most


def for_buffers(threads: int, max_body_bytes: int, limit: int) -> int:
    """Bytes that buffers in use may have before no further large one is given out; 0 without a limit.

    A quarter of the limit is left to all else, so that small requests are served whatever large ones there are.
    """
    return limit * 3 // 4 - _reserved(threads, large_buffer(max_body_bytes)) if limit else 0


def _reserved(threads: int, large: int) -> int:
    return _PROGRAM + threads * (_THREAD + int(_LARGE_OF_THREAD * large))
