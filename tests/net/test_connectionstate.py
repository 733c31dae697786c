"""The table of connection stages, events and holds."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.net.connectionstate import (
    TRANSITIONS,
    ConnectionEvent,
    ConnectionHold,
    ConnectionStage,
    ConnectionState,
)
from rookery.net.settings import ConnectionSettings

SETTINGS = ConnectionSettings(
    linger_ms=1, handshake_timeout_ms=2, receive_timeout_ms=3, idle_timeout_ms=4
)
NEW, HANDSHAKE, OPEN, HALF_CLOSED, DRAINING, CLOSING, CLOSED = ConnectionStage
CONNECT, ADMIT, END, DRAIN, CLOSE, LOST, *HOLD_EVENTS = ConnectionEvent
# The shortest way to each stage.
WAYS = {
    NEW: (),
    HANDSHAKE: (CONNECT,),
    OPEN: (CONNECT, ADMIT),
    HALF_CLOSED: (CONNECT, END),
    DRAINING: (CONNECT, DRAIN),
    CLOSING: (CONNECT, CLOSE),
    CLOSED: (CONNECT, LOST),
}
# What changes the stage; every other event leaves it, or cannot happen.
CHANGES = {
    (NEW, CONNECT): HANDSHAKE,
    (HANDSHAKE, ADMIT): OPEN,
    (HANDSHAKE, END): HALF_CLOSED,
    (OPEN, END): HALF_CLOSED,
    **dict.fromkeys([(stage, DRAIN) for stage in (HANDSHAKE, OPEN, HALF_CLOSED)], DRAINING),
    **dict.fromkeys(
        [(stage, CLOSE) for stage in (HANDSHAKE, OPEN, HALF_CLOSED, DRAINING)], CLOSING
    ),
    **dict.fromkeys([(stage, LOST) for stage in ConnectionStage if stage is not CLOSED], CLOSED),
}
IMPOSSIBLE = {
    *((NEW, event) for event in ConnectionEvent if event not in (CONNECT, LOST)),
    *((stage, CONNECT) for stage in ConnectionStage if stage is not NEW),
    (CLOSED, LOST),
}
HOLDS = {
    ConnectionEvent.PEER_STOPS: (ConnectionHold.UNREAD, ConnectionEvent.PEER_READS),
    ConnectionEvent.YIELD: (ConnectionHold.TURN_OVER, ConnectionEvent.TURN),
    ConnectionEvent.PAUSE: (ConnectionHold.PAUSED, ConnectionEvent.RESUME),
    ConnectionEvent.MUTE: (ConnectionHold.MUTED, ConnectionEvent.UNMUTE),
}


def state_after(events: Iterable[ConnectionEvent]) -> ConnectionState:
    state = ConnectionState()
    for event in events:
        state.on(event)
    return state


def test_the_table_has_every_event_and_stage() -> None:
    assert set(TRANSITIONS) == set(ConnectionEvent)
    assert {len(row.stages) for row in TRANSITIONS.values()} == {len(ConnectionStage)}


@pytest.mark.parametrize("event", ConnectionEvent)
@pytest.mark.parametrize("stage", ConnectionStage)
def test_every_event_in_every_stage_has_its_transition(
    stage: ConnectionStage, event: ConnectionEvent
) -> None:
    state = state_after(WAYS[stage])
    assert state.stage is stage
    if (stage, event) in IMPOSSIBLE:
        with pytest.raises(RuntimeError, match=f"{stage.value} cannot {event.value}"):
            state.on(event)
        assert state.stage is stage
    else:
        following = CHANGES.get((stage, event), stage)
        assert state.on(event) is (following is not stage)
        assert state.stage is following


@pytest.mark.parametrize(
    ("stage", "reads", "starts", "is_over", "is_closing", "is_connected"),
    [
        (NEW, False, False, False, True, False),
        (HANDSHAKE, True, True, False, False, True),
        (OPEN, True, True, False, False, True),
        (HALF_CLOSED, False, True, True, False, True),
        (DRAINING, False, False, True, True, True),
        (CLOSING, False, False, False, True, True),
        (CLOSED, False, False, False, True, False),
    ],
)
def test_each_stage_allows_its_actions(
    stage: ConnectionStage,
    reads: bool,
    starts: bool,
    is_over: bool,
    is_closing: bool,
    is_connected: bool,
) -> None:
    state = state_after(WAYS[stage])
    assert (state.can_read, state.can_start, state.is_over) == (reads, starts, is_over)
    assert (state.is_closing, state.is_connected) == (is_closing, is_connected)


@pytest.mark.parametrize("stage", [HANDSHAKE, OPEN, HALF_CLOSED])
@pytest.mark.parametrize("event", HOLDS)
def test_hold_stops_reading_and_starting_until_it_is_released(
    stage: ConnectionStage, event: ConnectionEvent
) -> None:
    hold, release = HOLDS[event]
    state = state_after(WAYS[stage])
    free = state.can_read, state.can_start, state.is_over
    state.on(event)
    state.on(event)
    assert state.holds == hold
    assert (state.can_read, state.can_start, state.is_over) == (False, False, False)
    assert state.is_stuck is (hold is ConnectionHold.UNREAD)
    assert str(hold.name) in repr(state)
    state.on(release)
    assert (state.can_read, state.can_start, state.is_over) == free
    state.on(release)
    assert state.holds == ConnectionHold.NONE


@pytest.mark.parametrize("event", HOLDS)
def test_no_hold_keeps_a_draining_connection_open(event: ConnectionEvent) -> None:
    assert state_after([*WAYS[DRAINING], event]).is_over
    assert state_after([CONNECT, event, DRAIN]).is_over


def test_every_hold_is_counted_separately() -> None:
    state = state_after([*WAYS[OPEN], *HOLDS])
    for _, release in HOLDS.values():
        assert not state.can_start
        state.on(release)
    assert state.can_start


@given(st.lists(st.sampled_from(ConnectionEvent), max_size=40))
def test_invariants_hold_after_any_events(events: list[ConnectionEvent]) -> None:
    state = ConnectionState()
    seen: list[ConnectionEvent] = []
    order = list(ConnectionStage)
    for event in events:
        before = state.stage
        try:
            state.on(event)
        except RuntimeError:
            assert (before, event) in IMPOSSIBLE
            assert state.stage is before
            continue
        seen.append(event)
        # life has one direction
        assert order.index(state.stage) >= order.index(before)
        held = {hold for hold, release in HOLDS.values() if hold in state.holds}
        assert held == {
            hold for event, (hold, release) in HOLDS.items() if is_last(seen, event, release)
        }
        # Only a reading connection starts requests; none before CONNECT, when held or ended
        assert state.can_start >= state.can_read
        assert state.can_start is (
            seen[0] is CONNECT and not held and not {DRAIN, CLOSE, LOST} & set(seen)
        )
        assert not (state.can_read and END in seen)
        # a connection that must close is neither closed already nor able to read
        assert not (state.is_over and (state.can_read or {CLOSE, LOST} & set(seen)))
        assert state.is_over or not (DRAIN in seen and not {CLOSE, LOST} & set(seen))
        assert state.is_connected is (LOST not in seen)


def is_last(seen: list[ConnectionEvent], event: ConnectionEvent, other: ConnectionEvent) -> bool:
    """Whether an event came after the last of another."""
    both = [candidate for candidate in seen if candidate in (event, other)]
    return bool(both) and both[-1] is event


@pytest.mark.parametrize(
    ("events", "has_requests", "is_reading", "has_part", "patience_ms"),
    [
        (WAYS[HANDSHAKE], True, True, True, 2),
        (WAYS[OPEN], False, True, False, 4),
        (WAYS[OPEN], False, True, True, 3),
        (WAYS[OPEN], True, True, True, None),
        (WAYS[OPEN], False, False, True, None),
        ([*WAYS[OPEN], ConnectionEvent.PEER_STOPS], True, False, True, 4),
        ([*WAYS[OPEN], ConnectionEvent.MUTE], False, False, False, None),
        ([*WAYS[OPEN], ConnectionEvent.PAUSE], False, False, True, None),
        (WAYS[HALF_CLOSED], True, False, True, 1),
        (WAYS[DRAINING], True, False, False, 1),
        (WAYS[CLOSING], True, False, False, 1),
    ],
)
def test_timeouts_depend_on_the_state_of_the_client(
    events: Iterable[ConnectionEvent],
    has_requests: bool,
    is_reading: bool,
    has_part: bool,
    patience_ms: int | None,
) -> None:
    wait = state_after(events).wait(
        SETTINGS, has_requests=has_requests, is_reading=is_reading, has_part=has_part
    )
    assert (None if wait is None else wait.patience_ms) == patience_ms
