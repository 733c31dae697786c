"""Clients that exceed a rate get a throttle time, and are paused."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from rookery.errors import ConfigError, ErrorCode
from rookery.net.session import ClientSession
from rookery.proxy.filterapi import FORWARD, FilterContext
from rookery.proxy.filters import rate_limit
from rookery.proxy.filters.rate_limit import RateLimit
from rookery.testing.clock import ManualClock
from rookery.testing.servedproxy import ServedProxy
from rookery.wire.codec import read_response, request_frame
from rookery.wire.messages.fetch import FETCH, FetchResponse
from rookery.wire.messages.list_groups import (
    LIST_GROUPS,
    ListGroupsRequest,
    ListGroupsResponse,
)


def context(clock: ManualClock, pauses: list[int], **changes: Any) -> FilterContext:
    values: dict[str, Any] = {
        "cluster": "c",
        "node_id": None,
        "session": ClientSession(principal="User:a", host="10.0.0.1"),
        "api": LIST_GROUPS,
        "version": 4,
        "client_id": "one",
        "clock": clock,
        "open_upstream": None,
        "mute": pauses.append,
        "request_size": 100,
    }
    return FilterContext(**(values | changes))


def test_pause_is_that_of_kafka() -> None:
    limit, clock, pauses = RateLimit({"requests": 1}), ManualClock(), list[int]()
    request = ListGroupsRequest(states_filter=[])
    # A client that was idle can begin with ten seconds' worth.
    for _ in range(10):
        assert limit.measure(context(clock, pauses), request) is FORWARD
    assert not pauses

    eleventh = context(clock, pauses)
    limit.measure(eleventh, request)
    limit.throttle(eleventh, response := ListGroupsResponse(error_code=ErrorCode.NONE, groups=[]))

    # 11 requests in 10 s are 1.1 a second; a pause of 1 s makes it 1.
    assert pauses == [1_000]
    assert response.throttle_time_ms == 1_000


def test_fetched_bytes_count_once_they_are_known() -> None:
    limit, clock, pauses = RateLimit({"bytes": 100}), ManualClock(), list[int]()
    fetch = context(clock, pauses, api=FETCH, version=12)
    limit.measure(fetch, ListGroupsRequest(states_filter=[]))
    assert not pauses
    fetch.response_size = 1_900

    limit.throttle(fetch, response := FetchResponse(responses=[]))

    # 2 000 bytes in 10 s are 200 a second; a pause of 10 s makes it 100.
    assert pauses == [10_000]
    assert response.throttle_time_ms == 10_000


@pytest.mark.parametrize(
    ("per", "change"),
    [
        ("principal", {"session": ClientSession(principal="User:b", host="10.0.0.1")}),
        ("client_id", {"client_id": "two"}),
        ("host", {"session": ClientSession(principal="User:a", host="10.0.0.2")}),
    ],
)
def test_clients_do_not_share_a_limit(per: str, change: dict[str, Any]) -> None:
    limit, clock, pauses = RateLimit({"per": per, "requests": 0.1}), ManualClock(), list[int]()
    request = ListGroupsRequest(states_filter=[])
    limit.measure(context(clock, pauses), request)
    limit.measure(context(clock, pauses, **change), request)
    assert not pauses
    assert limit.clients == 2

    limit.measure(context(clock, pauses), request)
    assert len(pauses) == 1


def test_number_of_measured_clients_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit, "_MAX_CLIENTS", 100)
    limit, clock, pauses = (
        RateLimit({"per": "client_id", "requests": 1}),
        ManualClock(),
        list[int](),
    )

    for number in range(1_000):
        each = context(clock, pauses, client_id=f"{number}" * 100)
        limit.measure(each, ListGroupsRequest(states_filter=[]))

    assert limit.clients == 100


def test_paused_connection_gets_its_response_but_starts_no_request(server: str) -> None:
    frame = b"".join(request_frame(LIST_GROUPS, 4, 1, "a", ListGroupsRequest(states_filter=[])))
    options = {"requests": 0.1, "per": "client_id"}
    with (
        ServedProxy(server, filters=[RateLimit(options)]) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), 20) as client,
        socket.create_connection(("127.0.0.1", proxy.port), 20) as other,
        client.makefile("rb") as stream,
        other.makefile("rb") as second,
    ):
        client.sendall(frame * 3)
        free, paused = (
            read_response(LIST_GROUPS, 4, stream.read(int.from_bytes(stream.read(4), "big")))
            for _ in range(2)
        )
        other.sendall(
            b"".join(request_frame(LIST_GROUPS, 4, 1, "b", ListGroupsRequest(states_filter=[])))
        )
        assert second.read(4)
        client.setblocking(False)

        assert free.throttle_time_ms == 0
        assert paused.throttle_time_ms > 5_000
        # The third one waits: its response is not there, although a later request is answered.
        with pytest.raises(BlockingIOError):
            client.recv(1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "set requests or bytes"),
        ({"requests": 0}, "requests: must be a number above 0"),
        ({"requests": True}, "requests: must be a number above 0"),
        ({"bytes": float("nan")}, "bytes: must be a number above 0"),
        ({"bytes": 1, "per": "topic"}, "per: must be one of principal, client_id, host"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RateLimit(options)
