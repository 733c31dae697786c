"""A real Kafka accepts and refuses our batches as we do, and we read what it stores.

The few requests are packed by hand, so that nothing but the records layer is on trial.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from struct import Struct, unpack_from

import pytest

from rookery.errors import ErrorCode
from rookery.records import batches
from rookery.records.compression import CODECS, Codec
from rookery.records.recordcodec import BatchSettings, Record, build, read
from rookery.testing.kafka import KafkaServer
from tests.records.test_batch import ACCEPTED, REFUSED

TOPIC = "records-on-trial"
APPEND_TIME = "records-append-time"
PRODUCE, FETCH, CREATE_TOPICS = 0, 1, 19
_HEAD = Struct(">hhiH")


def text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


def number(value: int, size: int = 4) -> bytes:
    return value.to_bytes(size, "big", signed=True)


ONE = number(1)


class Wire:
    """One connection, one request at a time."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), 30)

    def call(self, key: int, version: int, body: bytes) -> bytes:
        frame = _HEAD.pack(key, version, 1, 0) + body
        self.socket.sendall(number(len(frame)) + frame)
        size = int.from_bytes(self.read(4), "big")
        return self.read(size)[4:]

    def read(self, size: int) -> bytes:
        parts = []
        while size:
            part = self.socket.recv(size)
            assert part, "Kafka closed the connection"
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def create(self, topic: str, config: dict[str, str]) -> None:
        configs = b"".join(text(name) + text(value) for name, value in config.items())
        wanted = text(topic) + ONE + number(1, 2) + number(0) + number(len(config)) + configs
        answer = self.call(CREATE_TOPICS, 2, ONE + wanted + number(30_000) + b"\x00")
        (code,) = unpack_from(">h", answer, 4 + 4 + 2 + len(topic))
        assert code == 0, ErrorCode(code)

    def produce(self, topic: str, records: bytes) -> tuple[ErrorCode, int]:
        """Send one partition's records: the code, and the offset that they got."""
        partition = number(0) + number(len(records)) + records
        body = number(-1, 2) + number(-1, 2) + number(30_000) + ONE
        answer = self.call(PRODUCE, 7, body + text(topic) + ONE + partition)
        code, offset = unpack_from(">hq", answer, 4 + 2 + len(topic) + 4 + 4)
        return ErrorCode(code), offset

    def produce_when_ready(self, topic: str, records: bytes) -> int:
        """Do the same as soon as the new topic has a leader."""
        for _ in range(100_000):
            code, offset = self.produce(topic, records)
            if not code.retriable:
                assert code is ErrorCode.NONE
                return offset
        raise AssertionError(f"{topic} has no leader")

    def fetch(self, topic: str, offset: int) -> bytes:
        where = number(0) + number(offset, 8) + number(1 << 20)
        body = number(-1) + number(5000) + ONE + number(1 << 20) + b"\x00" + ONE
        answer = self.call(FETCH, 4, body + text(topic) + ONE + where)
        at = 4 + 4 + 2 + len(topic) + 4 + 4
        code, _, _, aborted = unpack_from(">hqqi", answer, at)
        assert (code, aborted) in {(0, 0), (0, -1)}
        (size,) = unpack_from(">i", answer, at + 22)
        return answer[at + 26 : at + 26 + size]


@pytest.fixture(scope="module")
def wire(kafka: KafkaServer) -> Iterator[Wire]:
    host, port = kafka.address().rsplit(":", 1)
    connection = Wire(host, int(port))
    connection.create(TOPIC, {})
    connection.create(APPEND_TIME, {"message.timestamp.type": "LogAppendTime"})
    for topic in (TOPIC, APPEND_TIME):
        connection.produce_when_ready(topic, build([Record(b"first", None)]))
    yield connection
    connection.socket.close()


# Where Kafka 4.3 differs from us, and why we do not follow it.
KAFKAS_OWN = {
    # It keeps the first batch and drops the rest without a word.
    "a second batch cut off": "NONE",
    # It fails inside, which a client takes for the broker's fault.
    "length 2**31-1": "UNKNOWN_SERVER_ERROR",
    "codec 5": "UNKNOWN_SERVER_ERROR",
    "codec 7": "UNKNOWN_SERVER_ERROR",
    "gzip that is none": "UNKNOWN_SERVER_ERROR",
    "snappy that is none": "UNKNOWN_SERVER_ERROR",
    "snappy too short for three": "UNKNOWN_SERVER_ERROR",
    "lz4 that is none": "UNKNOWN_SERVER_ERROR",
    "zstd that is none": "UNKNOWN_SERVER_ERROR",
    "a codec and nothing to open": "UNKNOWN_SERVER_ERROR",
    # It does not look at them there, and readers find two records of one offset.
    "an offset twice": "NONE",
    # It clears the bit where producers set the time; no client sets it.
    "LogAppendTime": "NONE",
    # It takes these for a batch without a producer; no client sends them.
    "producer id -2": "NONE",
    "no epoch": "NONE",
    # It asks for the transaction's authorisation first, which is not the records' to know.
    "a transaction without an id": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "transactional": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    # One batch for a partition is a rule of Produce, so of its handler.
    "several": "INVALID_RECORD",
}


@pytest.mark.parametrize(("name", "data", "code"), REFUSED, ids=[r[0] for r in REFUSED])
def test_kafka_refuses_the_same_batches(wire: Wire, name: str, data: bytes, code: str) -> None:
    assert wire.produce(TOPIC, data)[0].name == KAFKAS_OWN.get(name, code)


@pytest.mark.parametrize(("name", "data"), ACCEPTED, ids=[a[0] for a in ACCEPTED])
def test_kafka_accepts_the_same_batches(wire: Wire, name: str, data: bytes) -> None:
    assert wire.produce(TOPIC, data)[0].name == KAFKAS_OWN.get(name, "NONE")


RECORDS = [
    Record(b"key", b"value" * 100, (("h", b"x"), ("n", None)), 1_700_000_000_000),
    Record(None, b"", (), 1_700_000_000_001),
    Record(b"", None, (), 1_699_999_999_999),
]


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
def test_kafka_stores_and_returns_our_batches(wire: Wire, codec: Codec) -> None:
    code, offset = wire.produce(TOPIC, build(RECORDS, BatchSettings(codec=codec)))
    assert code is ErrorCode.NONE
    data = wire.fetch(TOPIC, offset)
    header = batches.check_fetched(data)[0]
    assert (header.codec, header.base_offset) == (codec, offset)
    placed = [record._replace(offset=offset + n) for n, record in enumerate(RECORDS)]
    assert list(read(data, header)) == placed


def test_append_time_is_stamped_like_kafka(wire: Wire) -> None:
    sent = build(RECORDS)
    _, offset = wire.produce(APPEND_TIME, sent)
    data = wire.fetch(APPEND_TIME, offset)
    header = batches.check_fetched(data)[0]
    wanted = batches.parse(sent).with_append_time(header.max_timestamp)

    head, rest = batches.restamp(
        sent, wanted._replace(base_offset=offset, partition_leader_epoch=0)
    )

    assert head + rest == data[: header.end]
    assert {record.timestamp for record in read(data, header)} == {header.max_timestamp}
