"""For every route and version: any request is answered, refused in form, listed, documented."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import pytest

from rookery.broker.call import Route, routes
from rookery.errors import ErrorCode
from rookery.testing.messages import random_message
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.wire.catalog import FIRST_OWN_KEY
from rookery.wire.codec import decode, encode_bytes, read_response
from rookery.wire.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from tests.sweep.asking import (
    CASES,
    FIRST,
    Case,
    Line,
    error_codes,
    exchange,
    random_request,
    topic_ids,
)

SEEDS = 20
PAGE = Path(__file__).parents[2] / "docs" / "apis.md"
REFUSAL = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

# What Kafka 4.3.1 advertises, by key: the lowest and the highest version. Telemetry (71, 72) is
# there if a plugin takes it.
KAFKA = {
    0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6),
    11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 17: (0, 1),
    18: (0, 4), 19: (2, 7), 20: (1, 6), 21: (0, 2), 22: (0, 5), 23: (2, 4), 24: (0, 5),
    25: (0, 4), 26: (0, 5), 27: (1, 2), 28: (0, 5), 29: (1, 3), 30: (1, 3), 31: (1, 3),
    32: (1, 4), 33: (0, 2), 34: (1, 2), 35: (1, 5), 36: (0, 2), 37: (0, 3), 38: (1, 3),
    39: (1, 2), 40: (1, 2), 41: (1, 3), 42: (0, 2), 43: (0, 2), 44: (0, 1), 45: (0, 1),
    46: (0, 0), 47: (0, 0), 48: (0, 1), 49: (0, 1), 50: (0, 0), 51: (0, 0), 55: (0, 2),
    57: (0, 2), 60: (0, 2), 61: (0, 0), 64: (0, 0), 65: (0, 0), 66: (0, 2), 68: (0, 1),
    69: (0, 1), 71: (0, 0), 72: (0, 0),
    74: (0, 1), 75: (0, 0), 76: (1, 1), 77: (1, 1), 78: (1, 2), 79: (1, 2),
    88: (0, 0), 89: (0, 0), 90: (0, 1), 91: (0, 0), 92: (0, 0),
}  # fmt: skip
# Answers that have no place for an error in these versions.
MUTE = {("DescribeLogDirs", 1), ("DescribeLogDirs", 2)}
UNKNOWN_KEYS = (-1, 4, 5, 6, 7, 93, 1000, 2**15 - 1)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_any_request_is_answered_in_its_version(broker: ServedBroker, case: Case) -> None:
    random = Random(f"{case}")
    ids = topic_ids(broker.bootstrap)
    for _ in range(SEEDS):
        request = random_request(case, random, ids)

        answer = exchange(broker.port, case, request)

        assert answer is not None or case.api.is_one_way(request), request
        if answer is not None:
            assert ErrorCode.UNKNOWN_SERVER_ERROR not in error_codes(answer), request


@pytest.mark.parametrize("case", CASES, ids=str)
def test_any_request_can_be_refused(case: Case) -> None:
    told: set[ErrorCode] = set()
    for seed in range(SEEDS):
        request = random_message(case.api.request, case.version, seed)

        refusal = case.api.refuse(request, REFUSAL)

        back = decode(case.api.response, case.version, encode_bytes(refusal, case.version))
        told |= set(error_codes(back))
    expected = set() if (case.api.name, case.version) in MUTE else {REFUSAL}
    assert told - {ErrorCode.NONE} == expected


def test_served_apis_are_advertised_in_the_versions_of_kafka(broker: ServedBroker) -> None:
    answer = ask(broker.bootstrap, API_VERSIONS, 0, ApiVersionsRequest())

    told = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
    assert told.keys() == routes().keys()
    assert {key: told[key] for key in told if key < FIRST_OWN_KEY} == {
        key: KAFKA[key] for key in routes() if key < FIRST_OWN_KEY
    }
    assert len(told) == len(answer.api_keys)


def outside(route: Route) -> list[int]:
    versions = route.versions
    around = (versions.start - 1, versions.stop, -(2**15), 2**15 - 1)
    return [version for version in around if version not in versions]


@pytest.mark.parametrize("route", routes().values(), ids=lambda route: route.api.name)
def test_versions_outside_the_range_close_the_connection(
    broker: ServedBroker, route: Route
) -> None:
    for version in outside(route):
        answer = send_header(broker.port, route.api.key, version)

        if route.api is API_VERSIONS:
            assert answer is not None
            assert (
                read_response(API_VERSIONS, 0, answer).error_code is ErrorCode.UNSUPPORTED_VERSION
            )
        else:
            assert answer is None, version


@pytest.mark.parametrize("key", [*UNKNOWN_KEYS, *sorted(set(KAFKA) - set(routes()))])
def test_unserved_api_closes_the_connection(broker: ServedBroker, key: int) -> None:
    for version in (0, 1, -1, 2**15 - 1):
        assert send_header(broker.port, key, version) is None, version


def send_header(port: int, key: int, version: int) -> bytes | None:
    """Send a request that is little more than its header; return what comes back."""
    request = struct.pack(">hhih", key, version, FIRST, -1) + bytes(20)
    with Line(port) as line:
        line.send(struct.pack(">i", len(request)), request)
        return line.read()


@pytest.mark.parametrize("route", routes().values(), ids=lambda route: route.api.name)
def test_every_route_has_a_row_in_the_docs(route: Route) -> None:
    first, last = route.versions.start, route.versions.stop - 1
    versions = str(first) if first == last else f"{first}–{last}"  # noqa: RUF001 (a range's dash)
    start = f"| {route.api.key} | {route.api.name} | {versions} | "

    assert any(line.startswith(start) for line in PAGE.read_text("utf-8").splitlines())
