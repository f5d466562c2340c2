"""What the writer asks of a body, so that no more than a little of it is ever in memory."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from slipway.depot.storage.writer import PIECE_BYTES, Body, CutError


class Content:
    """A body that gives what is asked for, as far as it goes."""

    def __init__(self, size: int) -> None:
        self.left, self.asked = size, [0]

    async def read(self, most: int) -> bytes:
        self.asked.append(most)
        size = min(most, self.left)
        self.left -= size
        return bytes(size)


def body(announced: int, there: int) -> tuple[Body, Content]:
    content = Content(there)
    request = SimpleNamespace(content=content, content_length=announced, transport=None)
    return Body(request, 60.0, lambda: False), content  # type: ignore[arg-type]


async def test_little_is_asked_for_at_a_time_as_aiohttp_reads_ahead_what_is_asked_for():
    source, content = body(1 << 20, 1 << 20)
    while await source.chunk(PIECE_BYTES):
        pass
    assert (source.remaining, max(content.asked)) == (0, 128 << 10)


async def test_pushed_back_bytes_come_again_in_parts():
    source, _content = body(100, 100)
    head = await source.chunk(40)
    source.push_back(head)
    assert source.remaining == 100
    assert [len(await source.chunk(30)) for _unused in range(4)] == [30, 10, 30, 30]
    assert source.remaining == 0


async def test_a_body_that_ends_before_its_length_is_cut():
    source, _content = body(100, 60)
    assert len(await source.chunk(PIECE_BYTES)) == 60
    with pytest.raises(CutError, match="ended before its length"):
        await source.chunk(PIECE_BYTES)
