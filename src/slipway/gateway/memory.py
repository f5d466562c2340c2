"""HAProxy's use of memory, and the numbers of buffers and connections that fit in a limit. Pure.

HAProxy's option ``-m`` sets RLIMIT_DATA for the master and for each worker. The limit applies to reserved memory, not
to used memory, and a body that does not fit in an ordinary buffer reserves a whole large buffer. A failed allocation
breaks a request, possibly that of an innocent client. The gateway therefore limits connections and large buffers, so
that HAProxy normally stays far below the limit.
"""

from __future__ import annotations

BUFFER = 49152
"""Size of HAProxy's ordinary buffer in bytes. If a request fits in an ordinary buffer, HAProxy can resend it after a
broken connection, and handling it costs a third less CPU time than with a large buffer."""

SMALL_BUFFER = 8192
"""Size of HAProxy's small buffer in bytes. HAProxy keeps a copy of a request in a small buffer until the answer begins.

If a request or an answer does not fit in a small buffer, HAProxy copies the whole ordinary buffer. With small buffers
of 1 KB, these copies were more than a third of all instructions. HAProxy does not limit the number of small buffers, so
``max_buffers`` plans one for each ordinary buffer. A request holds one more in each hop. There can be at most
``connections.total_connections`` of the latter, which fit in the tenth of the memory that ``max_buffers`` leaves free.
In a measurement with a limit of 768 MiB, HAProxy reserved at most 730 MiB.
"""

_MIB = 1 << 20
_PROGRAM = 48 * _MIB
"""Bytes that a worker of HAProxy 3.4.7 reserves without threads, as measured."""
_THREAD = 10 * _MIB
_LARGE_OF_THREAD = 4.75
"""Number of large buffers that each thread reserves for itself but hardly uses, as measured."""
_CONNECTION = _MIB // 10 + 1
"""Bytes that HAProxy needs for a client that does not read its answer: two buffers and a little more."""
_LEAST_BODIES, _LEAST_BUFFERS = 4, 256


def large_buffer(max_body_bytes: int) -> int:
    """Return the size of a large buffer in bytes.

    The buffer is larger than the largest body, so that HAProxy can detect a chunked body above the limit.
    """
    return max_body_bytes + 131072


def minimum_limit(threads: int, max_body_bytes: int) -> int:
    """Return the lowest memory limit in bytes with which HAProxy starts and can read a few large bodies at a time."""
    large = large_buffer(max_body_bytes)
    return (_reserved_bytes(threads, large) + _LEAST_BODIES * large) * 4 // 3


def max_buffers(threads: int, max_body_bytes: int, limit: int) -> int:
    """Return the maximum number of ordinary buffers in use. ``limit`` is the memory limit in bytes. If it is 0, return
    0 for no maximum. Further requests wait for a free buffer."""
    if not limit:
        return 0
    large = large_buffer(max_body_bytes)
    room = limit * 9 // 10 - _reserved_bytes(threads, large) - _LEAST_BODIES * large
    return max(_LEAST_BUFFERS, room // (BUFFER + SMALL_BUFFER))


def max_connections(maximum: int, threads: int, max_body_bytes: int, limit: int) -> int:
    """Return the maximum number of connected clients: ``maximum``, or fewer if they would exceed ``limit`` bytes. A
    limit of 0 means no limit.

    Every connection has a buffer. Slow clients and requests in hops need more than one buffer, so ``connections.py``
    limits the connections of each client address.
    """
    return min(maximum, max_buffers(threads, max_body_bytes, limit), limit // _CONNECTION) if limit else maximum


def buffer_budget(threads: int, max_body_bytes: int, limit: int) -> int:
    """Return the total size in bytes up to which HAProxy may allocate large buffers, counting all buffers in use.
    ``limit`` is the memory limit in bytes. If it is 0, return 0 for no maximum.

    The rest of the memory always remains available to small requests.
    """
    return limit * 3 // 4 - _reserved_bytes(threads, large_buffer(max_body_bytes)) if limit else 0


def _reserved_bytes(threads: int, large: int) -> int:
    return _PROGRAM + threads * (_THREAD + int(_LARGE_OF_THREAD * large))
