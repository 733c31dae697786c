"""Clients may use what both the proxy and the upstream know."""

from __future__ import annotations

import socket
from functools import partial

import pytest

from rookery.broker.features import OWN
from rookery.cluster.state.state import FEATURE_LEVEL
from rookery.errors import ErrorCode
from rookery.proxy.apiversions import (
    KNOWN_FEATURES,
    change_versions,
    intersect_versions,
    refuse_versions,
)
from rookery.proxy.passage import mirror_passages
from rookery.proxy.settings import ProxySettings
from rookery.testing.kafka import KafkaServer
from rookery.testing.ports import HOST
from rookery.testing.servedbroker import ask
from rookery.testing.servedproxy import ServedProxy
from rookery.wire.codec import decode, response_frame
from rookery.wire.frame import Frame
from rookery.wire.messages.api_versions import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from rookery.wire.messages.fetch import FETCH
from rookery.wire.messages.produce import PRODUCE
from rookery.wire.messages.sasl_handshake import SASL_HANDSHAKE
from rookery.wire.messages.vote import VOTE
from tests.proxy.scripted import ScriptedBroker
from tests.proxy.test_broken_answers import Script, known_versions, reply

PASSAGES = mirror_passages()


def offer(key: int, lowest: int, highest: int) -> ApiVersion:
    return ApiVersion(api_key=key, min_version=lowest, max_version=highest)


@pytest.mark.parametrize(
    ("offered", "common"),
    [
        (offer(FETCH.key, 4, 99), offer(FETCH.key, 4, FETCH.versions.stop - 1)),
        (offer(FETCH.key, 4, 11), offer(FETCH.key, 4, 11)),
        (offer(FETCH.key, 98, 99), None),
        (offer(PRODUCE.key, 0, 13), offer(PRODUCE.key, 0, 13)),
        (offer(SASL_HANDSHAKE.key, 0, 1), offer(SASL_HANDSHAKE.key, 1, 1)),
        (offer(VOTE.key, 0, 2), None),
        (offer(4_711, 0, 2), None),
    ],
)
def test_versions_are_those_that_both_know(offered: ApiVersion, common: ApiVersion | None) -> None:
    answer = ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=[offered])

    has_changed = intersect_versions(answer, PASSAGES)

    assert answer.api_keys == ([common] if common else [])
    assert has_changed is (offered != common)


@pytest.mark.parametrize(
    ("offered", "common"),
    [
        (("transaction.version", 0, 2), (0, 2)),
        (("transaction.version", 1, 1), (1, 1)),
        (("transaction.version", 0, 9), (0, 2)),
        (("transaction.version", 8, 9), None),
        (("unheard.of.version", 0, 1), None),
    ],
)
def test_features_are_those_that_both_know(
    offered: tuple[str, int, int], common: tuple[int, int] | None
) -> None:
    name, lowest, highest = offered
    answer = ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=[],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
        ],
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=lowest, max_version_level=highest)
        ],
    )

    has_changed = intersect_versions(answer, PASSAGES)

    assert [(row.min_version, row.max_version) for row in answer.supported_features] == (
        [common] if common else []
    )
    assert [
        (row.min_version_level, row.max_version_level) for row in answer.finalized_features
    ] == ([common] if common else [])
    assert has_changed is ((lowest, highest) != common)


def test_features_of_broker_nodes_are_those_of_all_brokers() -> None:
    offered: list[dict[str, tuple[int, int]]] = [
        {"group.version": (0, 1), "transaction.version": (0, 2), "streams.version": (0, 1)},
        {"group.version": (0, 1), "transaction.version": (0, 1)},
    ]
    scripts = [Script(), Script()]
    brokers = [ScriptedBroker(script) for script in scripts]
    for epoch, (script, levels) in enumerate(zip(scripts, offered, strict=True)):
        script.brokers = [(node, HOST, broker.port) for node, broker in enumerate(brokers)]
        answer = known_versions()
        answer.supported_features = [
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in levels.items()
        ]
        answer.finalized_features_epoch = epoch
        answer.finalized_features = [
            FinalizedFeatureKey(
                name="transaction.version", min_version_level=epoch, max_version_level=epoch
            )
        ]
        script.special[API_VERSIONS.key] = partial(send, answer)
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    try:
        with ServedProxy(brokers[0].bootstrap, ProxySettings(nodes="proxy")) as proxy:
            response = ask(proxy.bootstrap, API_VERSIONS, 4, request)
    finally:
        for broker in brokers:
            broker.close()

    supported = {row.name: row.max_version for row in response.supported_features}
    assert supported == {"group.version": 1, "transaction.version": 1}
    assert response.finalized_features_epoch == 1
    assert [row.max_version_level for row in response.finalized_features] == [1]


def send(answer: ApiVersionsResponse, client: socket.socket, request: bytes) -> None:
    client.sendall(reply(request, answer))


def test_levels_of_kafka_are_known(kafka: KafkaServer) -> None:
    """A newer Kafka in the tests shows which levels the table lacks."""
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")

    answer = ask(kafka.bootstrap, API_VERSIONS, 4, request)

    levels = {row.name: row.max_version for row in answer.supported_features}
    assert levels | {OWN: FEATURE_LEVEL} == {
        name: known[-1] for name, known in KNOWN_FEATURES.items()
    }


def test_unchanged_answer_goes_out_as_it_came() -> None:
    row = offer(FETCH.key, 4, 11)
    answer = ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=[row])
    # A number in an unusual form is lost when the answer is encoded again.
    data = b"".join(response_frame(API_VERSIONS, 3, 5, answer))[4:-1] + b"\x80\0"

    changed = b"".join(change_versions(PASSAGES, 3, 7, Frame(memoryview(data))))

    assert changed[8:] == data[4:]


@pytest.mark.parametrize("version", API_VERSIONS.versions)
def test_answer_keeps_its_features_and_gets_the_clients_number(version: int) -> None:
    feature = SupportedFeatureKey(name="group.version", min_version=0, max_version=1)
    answer = ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=[offer(FETCH.key, 0, 99)],
        supported_features=[feature] if version >= 3 else [],
    )
    frame = Frame(memoryview(b"".join(response_frame(API_VERSIONS, version, 5, answer))[4:]))

    changed = b"".join(change_versions(PASSAGES, version, -7, frame))

    assert int.from_bytes(changed[4:8], "big", signed=True) == -7
    body = decode(ApiVersionsResponse, version, changed[8:])
    assert body.api_keys == [offer(FETCH.key, 0, FETCH.versions.stop - 1)]
    assert body.supported_features == answer.supported_features


def test_refusal_of_the_upstream_has_the_form_of_version_0() -> None:
    refusal = refuse_versions(3)
    frame = Frame(memoryview(b"".join(refusal)[4:]))

    assert b"".join(change_versions(PASSAGES, 4, 3, frame)) == b"".join(refusal)
