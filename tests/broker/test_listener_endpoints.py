"""A broker that leaves names the next leaders by their addresses on the client's own listener."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rookery.errors import ErrorCode
from rookery.wire.message import ZERO_UUID
from rookery.wire.messages.create_topics import CREATE_TOPICS
from rookery.wire.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from rookery.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from rookery.wire.messages.produce import PRODUCE
from tests.broker.raw import batch, produce_request
from tests.broker.secured import PASSWORD, USER, SecuredBroker
from tests.broker.test_login import SECURED, TIMEOUT_MS, authenticate, upstream
from tests.broker.test_throttle import create_request
from tests.broker.test_tokens_two_brokers import serve_two

PARTITIONS = 20
TOPIC = "moving"


@pytest.fixture(scope="module")
def brokers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[SecuredBroker, SecuredBroker]]:
    with serve_two(tmp_path_factory.mktemp("endpoints")) as (first, second):
        yield first, second


@pytest.mark.parametrize("listener", ["plaintext", "ssl", *SECURED])
async def test_next_leaders_have_addresses_of_the_listener(
    brokers: tuple[SecuredBroker, SecuredBroker], listener: str
) -> None:
    first, second = brokers
    async with upstream(first, listener) as connection:
        if listener in SECURED:
            await authenticate(connection, "PLAIN", f"\0{USER}\0{PASSWORD}".encode())
        made = create_request(TOPIC, partitions=PARTITIONS)
        await connection.call(CREATE_TOPICS, 7, made, TIMEOUT_MS)
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
        metadata = await connection.call(METADATA, 12, asked, TIMEOUT_MS)
        topic_id = metadata.topics[0].topic_id
        assert topic_id != ZERO_UUID
        first.broker.services.is_draining = True
        try:
            request = produce_request(TOPIC, {n: batch(b"a") for n in range(PARTITIONS)})
            produced = await connection.call(PRODUCE, 10, request, TIMEOUT_MS)
            parts = [
                FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1_000)
                for number in range(PARTITIONS)
            ]
            fetch = FetchRequest(
                max_wait_ms=0, min_bytes=0, session_id=0, session_epoch=-1,
                topics=[FetchTopic(topic_id=topic_id, partitions=parts)],
                forgotten_topics_data=[],
            )  # fmt: skip
            fetched = await connection.call(FETCH, 16, fetch, TIMEOUT_MS)
        finally:
            first.broker.services.is_draining = False
    codes = {part.error_code for part in produced.responses[0].partition_responses}
    assert codes == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    for answer in (produced, fetched):
        addresses = [f"{endpoint.host}:{endpoint.port}" for endpoint in answer.node_endpoints]
        assert addresses == [second.address(listener)]
