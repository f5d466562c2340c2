"""The clients of the lane streams: which streams they take for whole, and which for broken."""

from __future__ import annotations

import pytest

from tests.streams.clients import Stream

TEXT = b'data: {"choices": [{"text": "a", "finish_reason": null}]}'
LAST = b'data: {"choices": [{"text": "", "finish_reason": "length"}]}'
STOPPED = b'data: {"choices": [{"text": "", "finish_reason": "stop"}]}'
DONE = b"data: [DONE]"
CUT = b'data: {"error": {"message": "The model server disconnected.", "code": "answer_cut"}}'


@pytest.mark.parametrize(
    ("status", "lines", "whole"),
    [
        (200, [TEXT, b"", b": ping", TEXT, LAST, DONE], True),
        (200, [TEXT, LAST], False),
        (200, [TEXT, DONE], False),
        (200, [TEXT, STOPPED, DONE], False),
        (200, [TEXT, CUT], False),
        (200, [TEXT, LAST, CUT, DONE], False),
        (200, [], False),
        (503, [TEXT, LAST, DONE], False),
    ],
    ids=["whole", "no-done", "no-finish", "stopped-early", "cut", "error-after-finish", "empty", "status"],
)
def test_only_a_stream_with_its_end_is_whole(status: int, lines: list[bytes], whole: bool) -> None:
    stream = Stream(client=0, tokens=2, opened=0.0, status=status)
    for line in lines:
        stream.read(line + b"\n")
    assert stream.whole == whole
    assert stream.events == sum(line.startswith(b"data: {") for line in lines)


@pytest.mark.parametrize(("ended", "long"), [(130.0, True), (129.9, False)])
def test_a_stream_is_long_by_the_time_from_its_first_event(ended: float, long: bool) -> None:
    stream = Stream(0, 2, opened=0.0, status=200, began=10.0, ended=ended, finish="length", done=True)
    assert stream.long == long
