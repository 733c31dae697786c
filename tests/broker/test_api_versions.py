"""ApiVersions: the advertised versions and features, and the generated page of APIs."""

from __future__ import annotations

import re
import socket
import struct
from pathlib import Path

import pytest

from rookery.broker.call import routes
from rookery.broker.pages.apidocs import page
from rookery.cluster.state.state import FEATURE_LEVEL
from rookery.errors import ErrorCode
from rookery.testing.java import Java
from rookery.testing.kafka import KafkaServer
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.wire.catalog import FIRST_OWN_KEY
from rookery.wire.codec import read_response
from rookery.wire.messages.api_versions import (
    API_VERSIONS,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from rookery.wire.messages.get_telemetry_subscriptions import GET_TELEMETRY_SUBSCRIPTIONS
from rookery.wire.messages.push_telemetry import PUSH_TELEMETRY

# Kafka lists Produce from 0 on though it refuses 0 to 2, and so do we.
PRODUCE = 0


def listed(answer: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}


def versions(bootstrap: str, version: int = 4) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
    return ask(bootstrap, API_VERSIONS, version, request)


@pytest.mark.parametrize("version", range(5))
def test_every_version_lists_exactly_the_routes(broker: ServedBroker, version: int) -> None:
    answer = versions(broker.bootstrap, version)

    assert answer.error_code is ErrorCode.NONE
    expected = {key: (r.versions.start, r.versions.stop - 1) for key, r in routes().items()}
    expected[PRODUCE] = (0, expected[PRODUCE][1])
    assert listed(answer) == expected


def test_served_apis_have_the_versions_of_kafka(broker: ServedBroker, kafka: KafkaServer) -> None:
    theirs = listed(versions(kafka.bootstrap))

    ours = listed(versions(broker.bootstrap))

    # Kafka serves client metrics only with a plugin that takes them.
    for key in (GET_TELEMETRY_SUBSCRIPTIONS.key, PUSH_TELEMETRY.key):
        assert (ours.pop(key), theirs.get(key)) == ((0, 0), None)
    kafkas = {key for key in ours if key < FIRST_OWN_KEY}
    assert {key: ours[key] for key in kafkas} == {key: theirs[key] for key in kafkas}


def test_an_unknown_version_is_answered_in_version_0(broker: ServedBroker) -> None:
    request = struct.pack(">hhih", 18, 1234, 77, -1)
    with socket.create_connection(("127.0.0.1", broker.port), 10) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as stream:
            answer = stream.read(int.from_bytes(stream.read(4), "big"))

    assert answer[:4] == struct.pack(">i", 77)
    body = read_response(API_VERSIONS, 0, answer)
    assert body.error_code is ErrorCode.UNSUPPORTED_VERSION
    assert listed(body) == {18: (0, 4)}


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "a\n", "ä"])
def test_bad_software_names_are_refused_as_kafka_does(
    broker: ServedBroker, kafka: KafkaServer, name: str
) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")

    ours = ask(broker.bootstrap, API_VERSIONS, 3, request)

    assert ours.error_code is ErrorCode.INVALID_REQUEST
    assert ask(kafka.bootstrap, API_VERSIONS, 3, request).error_code is ours.error_code


def test_features_are_our_own_level_and_the_supported_ones_of_kafka(broker: ServedBroker) -> None:
    answer = versions(broker.bootstrap)

    told = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    assert {feature.name for feature in answer.supported_features} == set(told)
    assert told["rookery.version"] == FEATURE_LEVEL
    # Without it clients do not use an epoch for each transaction.
    assert told["transaction.version"] == 2
    assert answer.finalized_features_epoch >= 0


def test_kafka_tool_reads_api_versions(broker: ServedBroker, java: Java) -> None:
    done = java.tool("kafka-broker-api-versions", "--bootstrap-server", broker.bootstrap)

    assert done.returncode == 0, done.stderr
    usable = set(re.findall(r"\((\d+)\): [\d to]+ \[usable", done.stdout))
    assert usable == {str(key) for key in routes() if key < FIRST_OWN_KEY}


def test_documentation_page_of_apis_is_current() -> None:
    path = Path(__file__).parents[2] / "docs" / "apis.md"

    assert path.read_text("utf-8") == page(), "run scripts/docs"
