"""The state of a producer in a partition: batches, epochs, and ends of transactions."""

from __future__ import annotations

import pytest

from rookery.cluster.state.producers import (
    FENCED,
    NEW,
    OUT_OF_ORDER,
    ProducerFacts,
    Verdict,
    close,
    describe,
    judge,
    remember,
)
from rookery.errors import ErrorCode


def window(count: int, epoch: int = 0, before: bytes | None = None, first: int = 0) -> bytes:
    """Remember batches of one record each; the batch with sequence n has offset 100 + n."""
    packed = before
    for number in range(first, first + count):
        packed = remember(packed, epoch, number, 1, offset=100 + number, time_ms=number)
    assert packed is not None
    return packed


def test_last_five_batches_are_recognised() -> None:
    known = window(7)
    assert [judge(known, 0, number, 1) for number in range(9)] == [
        OUT_OF_ORDER,
        OUT_OF_ORDER,
        *(Verdict(ErrorCode.NONE, 100 + number) for number in range(2, 7)),
        NEW,
        OUT_OF_ORDER,
    ]


@pytest.mark.parametrize("epoch", [0, 1])
def test_batch_after_a_marker_is_never_a_repetition(epoch: int) -> None:
    """By the newer protocol the marker bears the next epoch, and sequences start over."""
    known = close(window(3), epoch, 50)
    goes_on = 0 if epoch else 3
    assert [number for number in range(6) if judge(known, epoch, number, 1) is NEW] == [goes_on]
    assert judge(known, epoch - 1, goes_on, 1) is FENCED


def test_marker_is_not_counted_among_the_five_batches() -> None:
    known = window(5, before=close(window(2), 0, 50), first=2)
    assert [judge(known, 0, number, 1).offset for number in range(2, 7)] == list(range(102, 107))


def test_producer_is_described_after_batches_and_markers() -> None:
    known = window(3)
    assert describe(known) == ProducerFacts(0, 2, 2, has_ended=False)
    known = close(known, 0, 50)
    assert describe(known) == ProducerFacts(0, 50, 2, has_ended=True)
    known = window(7, before=known, first=3)
    assert describe(known) == ProducerFacts(0, 9, 9, has_ended=True)
    known = close(known, 1, 60)
    assert describe(known) == ProducerFacts(1, 60, -1, has_ended=True)
    known = window(1, epoch=2, before=known)
    assert describe(known) == ProducerFacts(2, 0, 0, has_ended=True)


def test_marker_without_earlier_batches_is_recorded() -> None:
    known = close(None, 4, 50)
    assert describe(known) == ProducerFacts(4, 50, -1, has_ended=True)
    assert judge(known, 4, 0, 1) is NEW
    assert judge(known, 4, 1, 1) is OUT_OF_ORDER
