"""Retries: which errors, for how long, and the error in the end."""

from __future__ import annotations

import asyncio

import pytest

from rookery.client.connect.retry import (
    ClientRetrier,
    Deadline,
    PersistentError,
    is_stale,
    may_retry,
)
from rookery.client.settings import ClientSettings
from rookery.clock import SystemClock
from rookery.errors import (
    ApiError,
    ConfigError,
    Corrupt,
    Error,
    ErrorCode,
    ProtocolError,
    Unavailable,
)
from rookery.testing.clock import ManualClock, SeededRandom


def make_retrier() -> ClientRetrier:
    settings = ClientSettings(bootstrap="localhost:9092", retry_backoff_ms=1)
    return ClientRetrier(settings, SystemClock(), SeededRandom())


class Flaky:
    """Raises some errors, one after the other, then returns."""

    def __init__(self, *errors: Error) -> None:
        self._errors = list(errors)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self._errors:
            raise self._errors.pop(0)
        return "done"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Unavailable("gone"), True),
        (ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER), True),
        (ApiError(ErrorCode.REQUEST_TIMED_OUT), True),
        (ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), False),
        (ApiError(ErrorCode.MESSAGE_TOO_LARGE), False),
        (PersistentError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), False),
        (ProtocolError("nonsense"), False),
        (ConfigError("tls"), False),
        (Corrupt("crc"), False),
    ],
)
def test_kind_of_error_decides_whether_to_retry(error: Error, expected: bool) -> None:
    assert may_retry(error) is expected


def test_stale_metadata_error_is_recognised() -> None:
    assert is_stale(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert is_stale(Unavailable("the connection broke"))
    assert not is_stale(ApiError(ErrorCode.REQUEST_TIMED_OUT))


async def test_call_is_retried_until_it_succeeds() -> None:
    retrier, seen = make_retrier(), list[Error]()
    attempt = Flaky(Unavailable("one"), ApiError(ErrorCode.LEADER_NOT_AVAILABLE))

    assert await retrier.run("it", retrier.deadline(5_000), attempt, seen.append) == "done"
    assert attempt.calls == 3
    assert [type(error) for error in seen] == [Unavailable, ApiError]


async def test_non_retriable_error_is_raised_immediately() -> None:
    retrier, refusal = make_retrier(), ApiError(ErrorCode.INVALID_CONFIG)
    attempt = Flaky(refusal)

    with pytest.raises(ApiError) as caught:
        await retrier.run("it", retrier.deadline(5_000), attempt)
    assert caught.value is refusal
    assert attempt.calls == 1


async def test_timeout_carries_the_last_cause() -> None:
    retrier, last = make_retrier(), ApiError(ErrorCode.NOT_CONTROLLER)
    attempt = Flaky(*[Unavailable("first")], *[last] * 10_000)

    with pytest.raises(
        Unavailable, match=r"move it: gave up after 50 ms .*NOT_CONTROLLER"
    ) as timeout:
        await retrier.run("move it", retrier.deadline(50), attempt)
    assert timeout.value.__cause__ is last


async def test_hanging_attempt_ends_at_the_deadline() -> None:
    retrier = make_retrier()

    with pytest.raises(Unavailable, match="gave up after 20 ms and one try; no answer came"):
        await retrier.run("it", retrier.deadline(20), asyncio.Event().wait)


def test_pauses_grow_up_to_a_bound() -> None:
    settings = ClientSettings(bootstrap="b:1", retry_backoff_ms=100, retry_backoff_max_ms=1_000)
    retrier = ClientRetrier(settings, ManualClock(), SeededRandom())
    pauses = [retrier.backoff_ms(tries) for tries in (1, 2, 3, 4, 5, 10_000)]

    for pause, middle in zip(pauses, (100, 200, 400, 800, 1_000, 1_000), strict=True):
        assert 0.8 * middle <= pause <= 1.2 * middle


def test_deadline_expires() -> None:
    clock = ManualClock()
    deadline = Deadline(clock, 100)
    assert deadline.cap(1_000) == 100
    clock.advance(60)
    assert (deadline.left_ms, deadline.cap(1_000), deadline.cap(10)) == (40, 40, 10)
    clock.advance(1_000)
    assert (deadline.left_ms, deadline.cap(1_000)) == (0, 1)
