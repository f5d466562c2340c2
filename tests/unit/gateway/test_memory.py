"""What fits into HAProxy's memory limit."""

from __future__ import annotations

import pytest

from slipway.gateway import memory

MIB = 1 << 20


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("body", [1 * MIB, 16 * MIB, 256 * MIB])
@pytest.mark.parametrize("times", [1, 2, 10])
def test_neither_large_bodies_nor_ordinary_buffers_reach_the_limit(threads: int, body: int, times: int) -> None:
    limit = times * memory.least(threads, body)
    fixed = memory.least(threads, body) * 3 // 4 - 4 * memory.large_buffer(body)
    assert fixed + memory.for_buffers(threads, body, limit) <= limit * 3 // 4 + 4
    both = memory.BUFFER + memory.SMALL_BUFFER
    assert fixed + memory.buffers(threads, body, limit) * both <= limit * 9 // 10
    assert memory.for_buffers(threads, body, limit) >= 4 * memory.large_buffer(body) - 4


def test_there_are_no_more_connections_than_buffers() -> None:
    limit = 512 * MIB
    assert memory.connections(10_000, 2, 16 * MIB, limit) <= memory.buffers(2, 16 * MIB, limit)
    assert memory.connections(100, 2, 16 * MIB, limit) == 100


def test_without_a_limit_nothing_is_bounded_by_it() -> None:
    assert memory.connections(10_000, 2, 16 * MIB, 0) == 10_000
    assert memory.buffers(2, 16 * MIB, 0) == 0
    assert memory.for_buffers(2, 16 * MIB, 0) == 0
