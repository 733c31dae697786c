"""Requests and responses pass the proxy unchanged, except for correlation ids and addresses.

A tap between the proxy and the broker keeps what the two say to each other. For requests that
change nothing, the answer through the proxy also equals the one that a client gets directly.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from random import Random

import pytest

from rookery.model.address import Address, parse_addresses
from rookery.proxy.addresses import replace_addresses
from rookery.proxy.apiversions import intersect_versions
from rookery.proxy.passage import mirror_passages
from rookery.proxy.settings import ProxySettings
from rookery.testing.servedbroker import ask
from rookery.testing.servedproxy import ServedProxy
from rookery.wire.catalog import FIRST_OWN_KEY
from rookery.wire.codec import read_response
from rookery.wire.message import Message
from rookery.wire.messages.api_versions import (
    API_VERSIONS,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from rookery.wire.messages.metadata import MetadataRequest
from tests.proxy.tap import Tap
from tests.sweep.asking import CASES, FIRST, Case, Line, frame, random_request, topic_ids

SEEDS = 8
PASSAGES = mirror_passages()
# In earlier versions, Metadata always creates the topics that it names.
_FIRST_WITH_CHOICE = 4
LOGINS = {"SaslHandshake", "SaslAuthenticate"}
# Requests that change nothing, so that they can be sent twice, and to a server that others use.
HARMLESS = {
    "ConsumerGroupDescribe", "DescribeAcls", "DescribeClientQuotas", "DescribeCluster",
    "DescribeConfigs", "DescribeDelegationToken", "DescribeGroups", "DescribeProducers",
    "DescribeTopicPartitions", "DescribeTransactions", "DescribeUserScramCredentials", "Fetch",
    "FindCoordinator", "ListGroups", "ListOffsets", "ListPartitionReassignments",
    "ListTransactions", "Metadata", "OffsetFetch", "OffsetForLeaderEpoch", "StreamsGroupDescribe",
    "ShareGroupDescribe",
}  # fmt: skip
# Values that differ from answer to answer.
VOLATILE = ("throttle_time_ms", "session_id")
BY_API = {
    name: list(rows)
    for name, rows in groupby(
        (
            case
            for case in CASES
            if case.api.key < FIRST_OWN_KEY
            and case.api.name not in LOGINS
            and PASSAGES.find((case.api.key, case.version))
        ),
        key=lambda case: case.api.name,
    )
}


@dataclass(frozen=True, slots=True)
class Scene:
    """A server, a tap before it, and a proxy before that."""

    server: str
    tap: Tap
    proxy: ServedProxy
    ids: dict[str, bytes]
    versions: dict[int, range]

    @property
    def nodes(self) -> dict[int, Address]:
        """The proxy's addresses of the brokers."""
        nodes = self.proxy.proxy.clusters[0].nodes
        assert nodes
        return nodes

    def offered(self, name: str) -> list[Case]:
        """Return the versions of an API that the server knows."""
        rows = [
            case for case in BY_API[name] if case.version in self.versions.get(case.api.key, ())
        ]
        assert rows
        return rows


@pytest.fixture(scope="module")
def scene(server: str) -> Iterator[Scene]:
    """The servers; nothing but the test sends requests.

    The proxy has mirror nodes: with others, it divides requests and joins their answers.
    """
    ids = topic_ids(server)
    rows = ask(server, API_VERSIONS, 0, ApiVersionsRequest()).api_keys
    versions = {row.api_key: range(row.min_version, row.max_version + 1) for row in rows}
    settings = replace(ProxySettings(), refresh_interval_ms=3_600_000)
    with (
        Tap(parse_addresses(server)[0]) as tap,
        ServedProxy(tap.bootstrap, settings) as proxy,
    ):
        tap.take()
        yield Scene(server, tap, proxy, ids, versions)


def exchange(port: int, data: bytes) -> bytes | None:
    """Send a request; return the answer, or None if the connection was closed instead."""
    with Line(port) as line:
        line.send(data)
        return line.read()


def translated(case: Case, answer: bytes, advertised: dict[int, Address]) -> Message:
    """Return a broker's answer as clients of the proxy are to see it."""
    response: Message = read_response(case.api, case.version, answer)
    if isinstance(response, ApiVersionsResponse):
        intersect_versions(response, PASSAGES)
    else:
        replace_addresses(response, advertised.get)
    return response


@pytest.mark.parametrize("name", [name for name in BY_API if name in HARMLESS])
def test_requests_and_answers_arrive_unchanged(scene: Scene, name: str) -> None:
    for case in scene.offered(name):
        random = Random(f"{case}")
        for _ in range(SEEDS):
            check_passage(scene, case, harmless_request(case, random, scene.ids))


# Other tests use the Kafka, too.
@pytest.mark.parametrize("server", ["rookery"], indirect=True)
@pytest.mark.parametrize("name", [name for name in BY_API if name not in HARMLESS])
def test_requests_that_change_something_arrive_unchanged(scene: Scene, name: str) -> None:
    for case in scene.offered(name):
        random = Random(f"{case}")
        for _ in range(SEEDS):
            check_passage(scene, case, random_request(case, random, scene.ids))


def harmless_request(case: Case, random: Random, ids: dict[str, bytes]) -> Message:
    """Return a random request that creates no topic."""
    request = random_request(case, random, ids)
    if isinstance(request, MetadataRequest):
        request.allow_auto_topic_creation = False
        if case.version < _FIRST_WITH_CHOICE:
            request.topics = [topic for topic in request.topics or [] if topic.name in ids]
    return request


def check_passage(scene: Scene, case: Case, request: Message) -> None:
    sent = frame(case.api, case.version, FIRST, request)
    if case.api.is_one_way(request):
        return
    received = exchange(scene.proxy.port, sent)

    requests, responses = scene.tap.take()
    assert [without_number(each) for each in requests] == [without_number(sent[4:])]
    if not responses:
        # The broker has closed its connection.
        assert received is None
        return
    [answer] = responses
    assert received is not None
    assert received[:4] == struct.pack(">i", FIRST)
    expected = translated(case, answer, scene.nodes)
    assert read_response(case.api, case.version, received) == expected
    if received[4:] != answer[4:]:
        # Only an answer in which something was to be changed was written again.
        assert expected != read_response(case.api, case.version, answer)


def without_number(request: bytes) -> bytes:
    """Return a request without its correlation id."""
    return request[:4] + request[8:]


@pytest.mark.parametrize("name", sorted(HARMLESS & BY_API.keys()))
def test_answers_equal_those_of_a_direct_connection(scene: Scene, name: str) -> None:
    port = parse_addresses(scene.server)[0].port
    for case in scene.offered(name):
        random = Random(f"{case} direct")
        for _ in range(SEEDS):
            sent = frame(case.api, case.version, FIRST, harmless_request(case, random, scene.ids))

            through = exchange(scene.proxy.port, sent)
            direct = exchange(port, sent)

            if direct is None or through is None:
                assert direct is through
                continue
            expected = steady(translated(case, direct, scene.nodes))
            # As text: equal records can be different views.
            assert repr(steady(read_response(case.api, case.version, through))) == repr(expected)


def steady(response: Message) -> Message:
    """Return an answer without the values that differ from one to the next."""
    for name in VOLATILE:
        if name in response.__fields__:
            setattr(response, name, 0)
    return response
