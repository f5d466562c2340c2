"""HAProxy's use of memory, and the numbers of buffers and connections that fit in a limit. Pure.

HAProxy's option ``-m`` sets RLIMIT_DATA for the master and for each worker. The limit applies to reserved memory, not
to used memory, and a body that does not fit in an ordinary buffer reserves a whole large one. A failed allocation
breaks the request that needed it, whichever client sent it. Connections and large buffers are therefore limited here,
so that HAProxy normally stays far below the limit.
"""

from __future__ import annotations

BUFFER = 49152
"""Size of HAProxy's ordinary buffer in bytes. HAProxy can resend a request that fits in one if a connection breaks, and
handling it costs a third less CPU than with a large buffer."""

SMALL_BUFFER = 8192
"""Size in bytes of the buffer for the copy of a request that HAProxy keeps until the answer begins. If a request or an
answer does not fit in a small buffer, HAProxy copies the whole ordinary buffer: at 1 KB that was more than a third of
all instructions. HAProxy does not limit the number of small buffers, so memory is reserved for one with each ordinary
buffer. A request holds one more in each hop. There can be at most connections.total_connections of these, and they fit
in the tenth that ``max_buffers`` leaves free: in a measurement with 768 MiB, HAProxy reserved at most 730."""

_MIB = 1 << 20
_PROGRAM = 48 * _MIB
"""Bytes that a worker of HAProxy 3.4.7 reserves without threads. This and the next two numbers are measurements."""
_THREAD = 10 * _MIB
_LARGE_OF_THREAD = 4.75
"""Large buffers that each thread reserves for itself, but hardly uses."""
_CONNECTION = _MIB // 10 + 1
"""Bytes for each client that does not read its answer: two buffers and a little more."""
_LEAST_BODIES, _LEAST_BUFFERS = 4, 256


def large_buffer(max_body_bytes: int) -> int:
    """Returns the size of a large buffer in bytes.

    It exceeds the largest body, so that HAProxy can detect a chunked body above the limit.
    """
    return max_body_bytes + 131072


def minimum_limit(threads: int, max_body_bytes: int) -> int:
    """Returns the lowest limit in bytes with which HAProxy starts and can read a few large bodies at a time."""
    large = large_buffer(max_body_bytes)
    return (_reserved_bytes(threads, large) + _LEAST_BODIES * large) * 4 // 3


def max_buffers(threads: int, max_body_bytes: int, limit: int) -> int:
    """Returns how many ordinary buffers may be in use; 0 if ``limit`` is 0. Further requests wait for a free buffer."""
    if not limit:
        return 0
    large = large_buffer(max_body_bytes)
    room = limit * 9 // 10 - _reserved_bytes(threads, large) - _LEAST_BODIES * large
    return max(_LEAST_BUFFERS, room // (BUFFER + SMALL_BUFFER))


def max_connections(maximum: int, threads: int, max_body_bytes: int, limit: int) -> int:
    """Returns how many clients may be connected: ``maximum``, or fewer if ``limit`` bytes (0: no limit) require it.

    Every connection has a buffer. Slow clients and requests in hops need more than one, so connections.py limits each
    client address.
    """
    return min(maximum, max_buffers(threads, max_body_bytes, limit), limit // _CONNECTION) if limit else maximum


def buffer_budget(threads: int, max_body_bytes: int, limit: int) -> int:
    """Returns how many bytes of buffers may be in use when a large buffer is allocated; 0 if ``limit`` is 0.

    The rest always remains available to small requests.
    """
    return limit * 3 // 4 - _reserved_bytes(threads, large_buffer(max_body_bytes)) if limit else 0


def _reserved_bytes(threads: int, large: int) -> int:
    return _PROGRAM + threads * (_THREAD + int(_LARGE_OF_THREAD * large))
