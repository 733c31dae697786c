"""The tables of a link's states."""

from __future__ import annotations

import pytest

from rookery.proxy.linkstate import (
    BACKEND_TRANSITIONS,
    LINK_TRANSITIONS,
    BackendEvent,
    BackendStage,
    BackendState,
    LinkEvent,
    LinkStage,
    LinkState,
)


def test_tables_have_a_row_for_each_event_and_a_column_for_each_stage() -> None:
    assert set(LINK_TRANSITIONS) == set(LinkEvent)
    assert set(BACKEND_TRANSITIONS) == set(BackendEvent)
    assert {len(row) for row in LINK_TRANSITIONS.values()} == {len(LinkStage)}
    assert {len(row) for row in BACKEND_TRANSITIONS.values()} == {len(BackendStage)}


def test_usual_life_of_a_link() -> None:
    state = LinkState()
    stages = []
    for event in (
        LinkEvent.ARRIVE,
        LinkEvent.VERSIONS_REQUEST,
        LinkEvent.LOGIN_REQUEST,
        LinkEvent.LOGIN_REQUEST,
        LinkEvent.REQUEST,
        LinkEvent.VERSIONS_REQUEST,
        LinkEvent.DRAIN,
        LinkEvent.LOST,
    ):
        state.on(event)
        stages.append(state.stage)

    assert stages == [
        LinkStage.CLIENT_ACTIVE,
        LinkStage.API_VERSIONS,
        LinkStage.AUTHENTICATING,
        LinkStage.AUTHENTICATING,
        LinkStage.ROUTING,
        LinkStage.ROUTING,
        LinkStage.DRAINING,
        LinkStage.CLOSED,
    ]


def test_nothing_leads_out_of_closed() -> None:
    assert {row[-1] for row in LINK_TRANSITIONS.values()} == {LinkStage.CLOSED, None}
    assert {row[-1] for row in BACKEND_TRANSITIONS.values()} == {BackendStage.CLOSED, None}


def test_backend_connects_once() -> None:
    state = BackendState()
    state.on(BackendEvent.CONNECT)

    with pytest.raises(RuntimeError, match="cannot connect"):
        state.on(BackendEvent.CONNECT)


def test_every_stage_can_be_reached() -> None:
    links = {stage for row in LINK_TRANSITIONS.values() for stage in row}
    backends = {stage for row in BACKEND_TRANSITIONS.values() for stage in row}

    assert links == {*LinkStage, None} - {LinkStage.STARTUP}
    assert backends == {*BackendStage, None} - {BackendStage.CREATED}


def test_client_arrives_once() -> None:
    state = LinkState()
    state.on(LinkEvent.ARRIVE)

    with pytest.raises(RuntimeError, match="client active cannot arrive"):
        state.on(LinkEvent.ARRIVE)
