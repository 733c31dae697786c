"""The audit file of a proxy."""

from __future__ import annotations

import json
import socket
import struct
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.errors import ConfigError
from rookery.proxy.filterapi import FORWARD, Filter, FilterContext, Verdict, on_request
from rookery.proxy.filters.audit import RequestAudit
from rookery.proxy.filters.deny import Deny
from rookery.proxy.settings import ProxySettings
from rookery.testing.servedbroker import ask
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from rookery.wire.codec import request_frame
from rookery.wire.messages.create_topics import CREATE_TOPICS, CreateTopicsRequest
from rookery.wire.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest
from tests.proxy.test_broken_filters import Silent


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_requests_are_recorded_with_their_outcome(server: str, tmp_path: Path) -> None:
    path, name = tmp_path / "audit.log", f"t-{uuid4().hex}"
    filters = [
        RequestAudit({"file": str(path), "except": ["ApiVersions", "Metadata"]}),
        Deny({"topics": ["secret"]}),
    ]
    with ServedProxy(server, filters=filters) as proxy:
        admin = AdminClient({"bootstrap.servers": proxy.bootstrap, "client.id": "auditor"})
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(20)
        with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
            admin.create_topics([NewTopic(name, 1, 1)])[name].result(20)
        with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
            admin.create_topics([NewTopic("secret", 1, 1)])["secret"].result(20)
        producer = Producer({"bootstrap.servers": proxy.bootstrap, "acks": 0})
        producer.produce(name, b"the-body-of-a-record", b"the-key")
        assert producer.flush(20) == 0

    written = records(path)
    created = [each for each in written if each["api"] == "CreateTopics"]
    assert [each["outcome"] for each in created] == ["done", "failed", "failed"]
    assert [each["errors"] for each in created] == [
        [],
        ["TOPIC_ALREADY_EXISTS"],
        ["TOPIC_AUTHORIZATION_FAILED"],
    ]
    assert [each["resources"]["topic"] for each in created] == [[name], [name], ["secret"]]
    assert {each["client_id"] for each in created} == {"auditor"}
    assert {each["host"] for each in written} == {"127.0.0.1"}
    assert {each["principal"] for each in written} == {"User:ANONYMOUS"}
    [produced] = [each for each in written if each["api"] == "Produce"]
    assert produced["outcome"] == "sent"
    assert "the-body" not in path.read_text()
    assert "the-key" not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


def test_request_that_a_later_filter_never_decides_about_is_recorded(
    server: str, tmp_path: Path
) -> None:
    path = tmp_path / "audit.log"
    settings = ProxySettings(filter_timeout_ms=200)
    filters = [RequestAudit({"file": str(path)}), Silent("request")]
    with ServedProxy(server, settings, filters) as proxy:
        ask(proxy.bootstrap, LIST_GROUPS, 4, ListGroupsRequest(states_filter=[]))

    [record] = records(path)
    assert (record["outcome"], record["errors"]) == ("failed", ["REQUEST_TIMED_OUT"])


class Watching(Filter):
    """Notes that a fetch is about to be forwarded."""

    is_passed = False

    @on_request(FETCH)
    def watch(self, context: FilterContext, request: FetchRequest) -> Verdict:
        self.is_passed = True
        return FORWARD


def test_request_whose_connection_breaks_is_recorded(
    server: str, topic: str, tmp_path: Path
) -> None:
    path, watching = tmp_path / "audit.log", Watching()
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    request = FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1_000,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
    with ServedProxy(server, filters=[RequestAudit({"file": str(path)}), watching]) as proxy:
        node = next(iter(proxy.proxy.clusters[0].nodes.values()))
        client = socket.create_connection((node.host, node.port), 20)
        client.sendall(b"".join(request_frame(FETCH, 12, 1, "gone", request)))
        wait_until(lambda: watching.is_passed)
        # Closes without a goodbye.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        wait_until(path.read_text)

    [record] = records(path)
    assert (record["api"], record["outcome"], record["client_id"]) == ("Fetch", "unknown", "gone")
    assert record["resources"] == {"topic": [topic]}


def test_names_cannot_break_a_line(server: str, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    request = CreateTopicsRequest(topics=[], timeout_ms=1, validate_only=True)
    with (
        ServedProxy(server, filters=[RequestAudit({"file": str(path)})]) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), 20) as client,
    ):
        client.sendall(b"".join(request_frame(CREATE_TOPICS, 5, 1, "a\n\x1b[2J" * 2_000, request)))
        assert client.recv(4)

    [record] = records(path)
    assert record["client_id"].startswith("a\n\x1b[2J")
    assert len(record["client_id"]) < 2_000
    assert "\x1b" not in path.read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "set the option file"),
        ({"file": "x", "apis": ["Nothing"]}, "there is no API 'Nothing'"),
        ({"file": "x", "apis": "Produce"}, "apis: must be a list of texts"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RequestAudit(options)
