"""Waits for the slow runs, which start with the first of these tests: see slow.py."""

from __future__ import annotations

import asyncio

import pytest

from .slow import SLOW

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.disruptive, pytest.mark.full]


@pytest.mark.parametrize("slow_run", SLOW)
async def test_slow(slow: dict[str, asyncio.Task[None]], slow_run: str) -> None:
    await slow[slow_run]
