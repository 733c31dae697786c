"""`wait_until`: values, timeouts and messages."""

from __future__ import annotations

import pytest

from rookery.testing.wait import wait_until, wait_until_async


def test_first_accepted_value_is_returned() -> None:
    values = iter([0, 0, 7])

    assert wait_until(lambda: next(values)) == 7


def test_accepts_decides_which_value_ends_the_wait() -> None:
    values = iter([3, 2, 1, 0])

    assert wait_until(lambda: next(values), accepts=lambda value: value < 2) == 1


def test_timeout_shows_the_last_value_and_the_name() -> None:
    with pytest.raises(TimeoutError, match=r"three members: not so .* last value was \[1, 2\]"):
        wait_until(lambda: [1, 2], "three members", accepts=lambda ids: len(ids) == 3, seconds=0)


def test_timeout_without_a_name_shows_the_source_of_the_condition() -> None:
    with pytest.raises(TimeoutError, match=r"sorted\(\[\]\)"):
        wait_until(lambda: sorted([]), seconds=0)


def test_exception_of_the_condition_ends_the_wait() -> None:
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 / 0)


async def test_async_wait_returns_the_first_accepted_value() -> None:
    values = iter([None, "x"])

    assert await wait_until_async(lambda: next(values)) == "x"


async def test_async_timeout_shows_the_last_value() -> None:
    with pytest.raises(TimeoutError, match="last value was 0"):
        await wait_until_async(lambda: 0, seconds=0)
