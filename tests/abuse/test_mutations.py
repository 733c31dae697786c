"""Valid requests, broken in every way: the connection is closed, or there is an answer.

A stranger to a closed broker gets answers about versions and logins only. A user without rules gets
as far as the access rules.
"""

from __future__ import annotations

import struct
import uuid
from enum import IntEnum
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from rookery.broker.call import Route, routes
from rookery.proxy.nodes.routes import RouteKind, route_of
from rookery.wire.catalog import kafka_apis
from tests.abuse.attack import FIRST, SIMPLE, Attacker, check_simple, framed, is_closed_after
from tests.abuse.batches import MEBIBYTE
from tests.abuse.samples import Sample, some, walk
from tests.abuse.targets import Target
from tests.abuse.victims import Role

# Of the newest version, which most clients speak, and of each of the others.
NEWEST, OLDER = 100, 20
# A server does not look at most requests of a stranger. A client that has logged in at a proxy
# sends the requests that an open proxy passes, too.
STRANGE = 5
LOGIN_KEYS = frozenset({17, 36})
BEFORE_LOGIN = LOGIN_KEYS | {18}
# SaslHandshake 0, which does not pass a proxy: tokens without a header would follow.
BARE_LOGIN = (17, 0)
# What broker nodes do not offer.
NOT_ROUTED = frozenset(
    api.key for api in kafka_apis().values() if route_of(api).kind is RouteKind.REFUSED
)
# What the allocator needs for short frames and the log; a list of that length has gigabytes.
HUGE_BYTES = 16 * MEBIBYTE
WITHOUT_LENGTHS = frozenset({"DescribeCluster", "GetTelemetrySubscriptions"})
"""APIs whose requests have neither lists nor texts."""

CASES = [
    pytest.param(
        route.api.request.__module__.rpartition(".")[2],
        version,
        NEWEST if version == route.versions[-1] else OLDER,
        id=f"{route.api.name}-{version}",
    )
    for route in routes().values()
    for version in route.versions
]


def check(sample: Sample, answer: bytes, request: bytes) -> None:
    """An answer has the form of its version, and is not that for an unexpected error."""

    def look(name: str, value: Any) -> None:
        is_code = isinstance(value, IntEnum)
        assert not (is_code and value == ErrorCode.unknown_server_error), request.hex()
        assert not (isinstance(value, str) and "Traceback" in value), request.hex()

    walk(sample.answer(answer), look)


def passes(target: Target, key: int, version: int) -> bool:
    """Return whether the server answers such requests at all."""
    if target.has_broker_nodes and key in NOT_ROUTED:
        return False
    return not target.is_proxied or (key, version) != BARE_LOGIN


@pytest.mark.parametrize(("folder", "version", "count"), CASES)
def test_malformed_request_is_answered_or_closes_its_connection(
    target: Target, topic_id: uuid.UUID, folder: str, version: int, count: int
) -> None:
    sample = Sample(folder, version, topic_id)
    if not passes(target, sample.key, version):
        assert is_closed_after(target.door, framed(sample.header() + sample.body()))
        return
    if target.is_stranger or (target.is_proxied and target.role is not Role.ANYONE):
        count = min(count, STRANGE)
    # A valid message may end the connection of a client that logs in with it, and fails.
    # Through a proxy, what follows it may reach the broker later, when the connection has ended.
    may_end = sample.key in LOGIN_KEYS and (target.is_proxied or not target.is_admitted)
    requests = [
        sample.header() + sample.body(),
        *some(sample.mutations(), count, f"{folder}-{version}"),
    ]
    line = Attacker(target.door)
    try:
        for number, request in enumerate(requests):
            line.send(framed(request) + SIMPLE)
            answer = line.read()
            if answer is not None and answer[:4] == struct.pack(">i", FIRST):
                assert not target.is_stranger or sample.key in BEFORE_LOGIN
                check(sample, answer, request)
                answer = line.read()
            if answer is None:
                is_refused = target.is_stranger and sample.key not in BEFORE_LOGIN
                assert number or may_end or is_refused, "the valid request closed the connection"
                line.__exit__(None, None, None)
                line = Attacker(target.door)
            else:
                check_simple(answer)
    finally:
        line.__exit__(None, None, None)


@pytest.mark.parametrize("target", ["plaintext"], indirect=True)
@pytest.mark.parametrize("route", routes().values(), ids=lambda route: route.api.name)
def test_length_of_no_list_is_trusted(target: Target, topic_id: uuid.UUID, route: Route) -> None:
    """A list, text or byte string of 2^31 - 1 items in a short frame (CVE-2026-111108)."""
    folder, tried = route.api.request.__module__.rpartition(".")[2], 0
    before = target.victim.forget_peak()
    for version in route.versions:
        for request in Sample(folder, version, topic_id, {}).huge_lengths():
            assert is_closed_after(target.door, framed(request)), request.hex()
            tried += 1

    assert bool(tried) != (route.api.name in WITHOUT_LENGTHS)
    assert target.victim.peak() - before < HUGE_BYTES
