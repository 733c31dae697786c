"""Sync before answer, for a whole produce, according to a trace of the system calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.errors import ErrorCode
from rookery.testing.wait import wait_until
from tests.crash.killing import create_topic
from tests.faults.probe import LARGE, produce
from tests.faults.tracing import Event, TracedBroker, events

TOPIC = "traced"
MARK = b"seen-by-the-kernel"
# Four letters, so that the answer is found in the trace.
CORRELATION = b"RooK"
SYNCS = {"fsync", "fdatasync"}


def trace_of(broker: TracedBroker, value: bytes) -> list[Event]:
    """Produce, and return the calls up to the answer, which is the last."""
    answer = produce(broker.port, TOPIC, value, correlation=int.from_bytes(CORRELATION, "big"))
    assert answer.error_code is ErrorCode.NONE
    trace: list[Event] = []

    def is_traced() -> bool:
        trace[:] = events(broker.trace.read_text().splitlines())
        return any(is_answer(event) for event in trace)

    wait_until(is_traced, "the answer is in the trace")
    return trace[: next(at for at, event in enumerate(trace) if is_answer(event)) + 1]


def is_answer(event: Event) -> bool:
    return (
        not event.is_done
        and "socket:" in event.path + event.rest
        and (CORRELATION.decode() in event.rest[:80])
    )


def last_write(trace: list[Event], name: str, mark: str = "") -> int:
    """Return where the last write to a file returned (with a mark in it, if one is given)."""
    places = [
        at
        for at, event in enumerate(trace)
        if event.is_done and event.name not in SYNCS and name in event.path and mark in event.rest
    ]
    assert places, f"nothing was written to {name}"
    return places[-1]


def synced(trace: list[Event], name: str, after: int) -> int:
    """Return where a sync of a file returned that began after a write to it had returned."""
    has_begun = False
    for at in range(after + 1, len(trace)):
        event = trace[at]
        if event.name in SYNCS and name in event.path:
            if event.is_done and has_begun:
                return at
            has_begun = True
    raise AssertionError(f"{name} was not synced before the answer")


def check_small(trace: list[Event]) -> None:
    """The record is in the cluster log alone."""
    marked = last_write(trace, "cluster.sqlite-wal", MARK.decode())
    written = last_write(trace, "cluster.sqlite-wal")
    assert written >= marked
    synced(trace, "cluster.sqlite-wal", written)


def check_large(trace: list[Event]) -> None:
    """The record is in the journal before the cluster log names it."""
    record = last_write(trace, "/journal/", MARK.decode())
    durable = synced(trace, "/journal/", record)
    commit = [
        at
        for at, event in enumerate(trace)
        if at > record and not event.is_done and event.path.endswith("cluster.sqlite-wal")
    ]
    assert commit, "nothing was committed after the record was written"
    assert durable < commit[0], "it was committed before it was durable"
    named = [event for event in trace if event.is_done and event.path.endswith("/journal")]
    assert any(event.name == "fsync" for event in named), "the new file's name was not synced"
    synced(trace, "cluster.sqlite-wal", last_write(trace, "cluster.sqlite-wal"))


CHECKS = {"small": (MARK, check_small), "large": (MARK + bytes(LARGE), check_large)}


@pytest.fixture
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[TracedBroker]:
    with TracedBroker(tmp_path / "data", request.param) as process:
        create_topic(process.bootstrap, TOPIC)
        yield process


@pytest.mark.parametrize("broker", ["disk"], indirect=True)
@pytest.mark.parametrize("size", CHECKS)
def test_answer_follows_the_sync(broker: TracedBroker, size: str) -> None:
    value, check = CHECKS[size]

    check(trace_of(broker, value))


@pytest.mark.parametrize("broker", ["os"], indirect=True)
@pytest.mark.parametrize("size", CHECKS)
def test_check_of_the_sync_order_can_fail(broker: TracedBroker, size: str) -> None:
    value, check = CHECKS[size]

    with pytest.raises(AssertionError, match="not synced"):
        check(trace_of(broker, value))
