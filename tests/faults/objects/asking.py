"""Single requests to a broker, without the retries of clients."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from rookery.errors import ErrorCode
from rookery.records import recordcodec
from rookery.testing.servedbroker import ask
from rookery.wire.messages.fetch import FETCH, PartitionData
from rookery.wire.messages.produce import PRODUCE, PartitionProduceResponse
from tests.broker.raw import batch, bytes_of, fetch_request, produce_request

OK = ErrorCode.NONE


def admin(bootstrap: str) -> AdminClient:
    """Return librdkafka's admin client."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def create(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """Make a topic."""
    client = admin(bootstrap)  # kept: its requests end when it is no longer referenced
    for future in client.create_topics([NewTopic(topic, partitions)]).values():
        future.result(30)


def delete(bootstrap: str, topic: str) -> None:
    """Delete a topic."""
    client = admin(bootstrap)
    for future in client.delete_topics([topic]).values():
        future.result(30)


def produce(
    bootstrap: str, topic: str, *values: bytes, partition: int = 0
) -> PartitionProduceResponse:
    """Send one batch; return the part of the response for its partition."""
    request = produce_request(topic, {partition: batch(*values)})
    [answer] = ask(bootstrap, PRODUCE, 9, request).responses[0].partition_responses
    return answer


def fetch(bootstrap: str, topic: str, offset: int, partition: int = 0) -> PartitionData:
    """Fetch from an offset on, without waiting."""
    [answer] = (
        ask(bootstrap, FETCH, 12, fetch_request({(topic, partition): offset}))
        .responses[0]
        .partitions
    )
    return answer


def values(bootstrap: str, topic: str, partition: int = 0, start: int = 0) -> list[bytes]:
    """Read a partition to its end; every offset must be there once."""
    values_read: list[bytes] = []
    while True:
        offset = start + len(values_read)
        answer = fetch(bootstrap, topic, offset, partition)
        assert answer.error_code is OK, answer.error_code
        more = list(recordcodec.read_all(bytes_of(answer)))
        more = [record for record in more if record.offset >= offset]
        if answer.high_watermark == offset and not more:
            return values_read
        assert [record.offset for record in more] == list(range(offset, offset + len(more)))
        assert more, f"stuck at offset {offset}"
        values_read += [record.value or b"" for record in more]
