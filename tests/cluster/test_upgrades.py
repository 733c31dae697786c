"""Logs of earlier releases: they open, give the same state, and are raised to a newer level."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.cluster.entry import read_entry, read_events
from rookery.cluster.events.brokerevents import (
    BrokerRegistered,
    FeatureLevelRaised,
)
from rookery.cluster.events.logevents import ProducerIdsAllotted
from rookery.cluster.open import open_log
from rookery.cluster.replica import Replica
from rookery.cluster.state.digest import PACKED, advance, pack
from rookery.cluster.state.images.image import read_image, write_image
from rookery.cluster.state.outcome import AppendOutcome, Outcome
from rookery.cluster.state.state import FEATURE_LEVEL, State
from rookery.errors import ErrorCode
from rookery.testing.clock import ManualClock
from tests.cluster.histories import Historian
from tests.golden import clusterlog

LEVELS = range(1, FEATURE_LEVEL + 1)


def replay(state: State, entries: Sequence[bytes]) -> State:
    """Apply entries; each one's digest must be that of the state before it."""
    for number, data in enumerate(entries, state.applied + 1):
        entry = read_entry(number, data)
        assert (entry.seen, entry.digest) == (state.applied, state.digest)
        state.apply(number, entry, read_events(number, entry))
    return state


@pytest.mark.parametrize("level", LEVELS)
def test_recorded_log_gives_the_recorded_state(level: int) -> None:
    """If this fails, the rules of a level have changed: gate the change by the next level.

    Only a level that no release has had yet may be recorded again (delete its file first).
    """
    recorded = clusterlog.load(level)
    state = replay(State(), recorded.entries)
    assert state.feature_level == level
    assert write_image(state) == recorded.last


@pytest.mark.parametrize("level", LEVELS)
def test_recorded_snapshot_can_be_continued(level: int) -> None:
    recorded = clusterlog.load(level)
    state = read_image(recorded.snapshot)
    assert write_image(state) == recorded.snapshot
    assert write_image(replay(state, recorded.entries[state.applied :])) == recorded.last


@pytest.mark.parametrize("has_snapshot", [False, True])
async def test_log_of_an_earlier_release_opens_and_is_upgraded(
    has_snapshot: bool, caplog: pytest.LogCaptureFixture
) -> None:
    recorded = clusterlog.load(1)
    log = open_log("memory:")
    for data in recorded.entries:
        await log.append(data)

    async def load(_at_least: int) -> State | None:
        return read_image(recorded.snapshot) if has_snapshot else None

    first, second = (Replica(log, ManualClock(), load) for _ in range(2))
    for replica in (first, second):
        await replica.open()
        await replica.register(BrokerRegistered(process_id=bytes(16), node_id=-1, host="h", port=1))

    async def allot(replica: Replica) -> None:
        for _ in range(20):
            await replica.propose([ProducerIdsAllotted(count=1)])

    # Both write at the lower level, while it is raised, and at the higher one.
    await asyncio.gather(
        allot(first), allot(second), first.propose([FeatureLevelRaised(feature_level=PACKED)])
    )

    for replica in (first, second):
        await replica.barrier()
    assert first.state.feature_level == PACKED
    assert write_image(first.state) == write_image(second.state)
    assert not caplog.records  # no replica has found another one to differ
    for replica in (first, second):
        await replica.close()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_all_outcomes_can_be_packed(seed: int) -> None:
    state, historian = State(), Historian(seed, PACKED)
    for number in range(1, 150):
        entry = read_entry(number, historian.entry(state))
        state.apply(number, entry, read_events(number, entry))
    assert state.feature_level == PACKED


VALUES = st.recursive(
    st.none() | st.integers(-(2**63), 2**63) | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)


@given(VALUES, VALUES)
def test_different_values_are_packed_differently(value: object, other: object) -> None:
    assert (pack(value) == pack(other)) == (value == other)


def test_class_names_are_not_part_of_the_digest() -> None:
    appended = AppendOutcome(ErrorCode.NONE, 5, -1, is_duplicate=False)
    assert pack(appended) == pack((0, 5, -1, 0))
    assert advance(0, PACKED, 1, [Outcome(ErrorCode.NONE)]) != advance(0, 1, 1, [])
    with pytest.raises(TypeError, match="set"):
        pack({1})
