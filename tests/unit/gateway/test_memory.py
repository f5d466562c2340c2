"""Buffers and connections that fit in HAProxy's memory limit."""

from __future__ import annotations

import pytest

from slipway.gateway import memory

MIB = 1 << 20


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("body", [1 * MIB, 16 * MIB, 256 * MIB])
@pytest.mark.parametrize("times", [1, 2, 10])
def test_neither_large_bodies_nor_ordinary_buffers_reach_the_limit(threads: int, body: int, times: int) -> None:
    limit = times * memory.minimum_limit(threads, body)
    fixed = memory.minimum_limit(threads, body) * 3 // 4 - 4 * memory.large_buffer(body)
    assert fixed + memory.buffer_budget(threads, body, limit) <= limit * 3 // 4 + 4
    both = memory.BUFFER + memory.SMALL_BUFFER
    assert fixed + memory.max_buffers(threads, body, limit) * both <= limit * 9 // 10
    assert memory.buffer_budget(threads, body, limit) >= 4 * memory.large_buffer(body) - 4


def test_there_are_no_more_connections_than_buffers() -> None:
    limit = 512 * MIB
    assert memory.max_connections(10_000, 2, 16 * MIB, limit) <= memory.max_buffers(2, 16 * MIB, limit)
    assert memory.max_connections(100, 2, 16 * MIB, limit) == 100


def test_without_a_memory_limit_nothing_is_limited() -> None:
    assert memory.max_connections(10_000, 2, 16 * MIB, 0) == 10_000
    assert memory.max_buffers(2, 16 * MIB, 0) == 0
    assert memory.buffer_budget(2, 16 * MIB, 0) == 0
