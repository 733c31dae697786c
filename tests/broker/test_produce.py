"""Produce: accepted and refused batches, the errors, and the stored bytes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

from rookery.broker.settings import BrokerSettings
from rookery.errors import ErrorCode, Unavailable
from rookery.records import batches
from rookery.records import recordcodec as records
from rookery.records.batches import TimestampType
from rookery.records.compression import CODECS, find_codec
from rookery.records.recordcodec import BatchSettings, Record, build
from rookery.testing.servedbroker import ServedBroker
from rookery.testing.wire import Peer
from rookery.wire.codec import request_frame
from rookery.wire.messages.produce import PRODUCE
from tests.broker.raw import Raw, batch, bytes_of, create, produce_request, raw
from tests.kafkapython import KafkaProducer

HOUR_MS = 3_600_000
CODEC_NAMES = [codec.name for codec in CODECS.values()]


@pytest.fixture
def topic(served: ServedBroker, request: pytest.FixtureRequest) -> str:
    name = "".join(character if character.isalnum() else "-" for character in request.node.name)
    create(served, name, 3)
    return name


def now(served: ServedBroker) -> int:
    return int(served.broker.services.clock.now_ms())


@pytest.mark.parametrize("version", range(3, 14))
async def test_every_version_returns_offsets(
    served: ServedBroker, topic: str, version: int
) -> None:
    topic_id = served.broker.replica.state.topics.by_name[topic].id
    async with raw(served) as client:
        request = produce_request(topic, {1: batch(b"a", b"b")}, topic_id=topic_id)
        first = await client.ask(PRODUCE, version, request)
        request = produce_request(topic, {1: batch(b"c")}, topic_id=topic_id)
        second = await client.ask(PRODUCE, version, request)
    [earlier], [later] = (r.responses[0].partition_responses for r in (first, second))
    assert (earlier.error_code, earlier.index, earlier.base_offset) == (ErrorCode.NONE, 1, 0)
    assert later.base_offset == 2
    assert earlier.log_append_time_ms == -1
    assert earlier.log_start_offset == (0 if version >= 5 else -1)
    if version >= 13:
        assert first.responses[0].topic_id == topic_id


@pytest.mark.parametrize("version", [0, 1, 2, 14])
async def test_versions_that_kafka_refuses_close_the_connection(
    served: ServedBroker, version: int
) -> None:
    peer = await Peer.connect(served.port)
    peer.write_frame(bytes([0, 0, 0, version, 0, 0, 0, 1]) + bytes(20))
    assert await peer.read_to_end() == b""
    await peer.close()


@pytest.mark.parametrize("acks", [1, -1])
async def test_acks_1_and_all_behave_the_same(served: ServedBroker, topic: str, acks: int) -> None:
    async with raw(served) as client:
        answer = await client.produce(topic, batch(b"a"), acks=acks)
        assert answer.error_code is ErrorCode.NONE
        assert bytes_of(await client.fetch(topic, 0))


async def test_other_acks_are_refused(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        answer = await client.produce(topic, batch(b"a"), acks=2)
        assert answer.error_code is ErrorCode.INVALID_REQUIRED_ACKS
        assert (await client.fetch(topic, 0)).high_watermark == 0


async def test_acks_0_is_written_without_an_answer(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        request = produce_request(topic, {0: batch(b"a")}, acks=0)
        await client.upstream.tell(PRODUCE, 9, request, 1000)
        # The next answer on the connection is that of the next request, and comes after it.
        answer = await client.produce(topic, batch(b"b"))
        assert answer.base_offset == 1


async def test_an_error_with_acks_0_closes_the_connection(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        request = produce_request(topic, {9: batch(b"a")}, acks=0)
        await client.upstream.tell(PRODUCE, 9, request, 1000)
        with pytest.raises(Unavailable):
            await _until_closed(client, topic)


async def _until_closed(client: Raw, topic: str) -> None:
    for _ in range(1000):
        await client.produce(topic, batch(b"b"))


async def test_invalid_partition_does_not_affect_others(served: ServedBroker, topic: str) -> None:
    bad = bytearray(batch(b"bad"))
    bad[-1] ^= 1
    async with raw(served) as client:
        request = produce_request(
            topic, {0: batch(b"a"), 1: bytes(bad), 7: batch(b"x"), 2: batch(b"c")}
        )
        response = await client.ask(PRODUCE, 11, request)
    parts = response.responses[0].partition_responses
    assert [part.error_code for part in parts] == [
        ErrorCode.NONE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
    ]
    assert [part.index for part in parts] == [0, 1, 7, 2]
    refused = parts[2]
    assert (refused.base_offset, refused.log_append_time_ms, refused.log_start_offset) == (
        -1,
        -1,
        -1,
    )
    assert refused.error_message


async def test_several_topics_are_written_in_one_request(served: ServedBroker, topic: str) -> None:
    create(served, topic + "-2", 2)
    async with raw(served) as client:
        request = produce_request(topic, {0: batch(b"a"), 1: batch(b"b")})
        request.topic_data += produce_request(topic + "-2", {1: batch(b"c")}).topic_data
        request.topic_data += produce_request("no-such-topic", {0: batch(b"c")}).topic_data
        response = await client.ask(PRODUCE, 11, request)
    assert [
        (topic_answer.name, part.index, part.error_code, part.base_offset)
        for topic_answer in response.responses
        for part in topic_answer.partition_responses
    ] == [
        (topic, 0, 0, 0),
        (topic, 1, 0, 0),
        (topic + "-2", 1, 0, 0),
        ("no-such-topic", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]


async def test_several_batches_for_a_partition_are_refused(
    served: ServedBroker, topic: str
) -> None:
    async with raw(served) as client:
        answer = await client.produce(topic, batch(b"a", b"b") + batch(b"c"))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
        assert (await client.produce(topic, batch(b"d"))).base_offset == 0


@pytest.mark.parametrize("data", [None, b""])
async def test_empty_record_set_is_refused(
    served: ServedBroker, topic: str, data: bytes | None
) -> None:
    async with raw(served) as client:
        answer = await client.produce(topic, data)
    assert answer.error_code is ErrorCode.INVALID_RECORD


def _with(position: int, value: bytes) -> bytes:
    made = bytearray(batch(b"a", b"b"))
    made[position : position + len(value)] = value
    header = batches.BatchHeader._make((*batches.FIELDS.unpack_from(made), 0))
    if position != 17:
        made[:61] = batches.seal(header, bytes(made[61:]))
    return bytes(made)


def _claiming(records: int) -> bytes:
    """Make a compressed batch that claims a number of records."""
    data = build([Record(None, b"v")], BatchSettings(codec=find_codec("gzip")))
    header = batches.parse(data)._replace(record_count=records, last_offset_delta=records - 1)
    return batches.seal(header, data[61:]) + data[61:]


def _magic(number: int) -> bytes:
    """Make a message of an old format: offset, size, CRC, magic, attributes, key, value."""
    message = bytes(4) + bytes([number, 0]) + (bytes(8) if number else b"")
    message += (-1).to_bytes(4, "big", signed=True) + (1).to_bytes(4, "big") + b"v"
    # Longer than a header of format 2, so that the magic can be looked at.
    message += bytes(60)
    return bytes(8) + len(message).to_bytes(4, "big") + message


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (_with(17, b"\0\0\0\1"), ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a")[:-1], ErrorCode.INVALID_RECORD),
        (batch(b"a") + b"xyz", ErrorCode.INVALID_RECORD),
        (_with(57, (2**31 - 1).to_bytes(4, "big")), ErrorCode.INVALID_RECORD),
        (_claiming(2**31 - 1), ErrorCode.INVALID_RECORD),
        (_with(21, b"\0\x20"), ErrorCode.INVALID_RECORD),
        (_with(21, b"\0\x07"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (_magic(0), ErrorCode.INVALID_RECORD),
        (_magic(1), ErrorCode.INVALID_RECORD),
    ],
    ids=[
        "crc",
        "cut",
        "trailing",
        "count",
        "packed-count",
        "control",
        "codec",
        "magic-0",
        "magic-1",
    ],
)
async def test_invalid_batches_are_refused_and_nothing_is_written(
    served: ServedBroker, topic: str, data: bytes, code: ErrorCode
) -> None:
    async with raw(served) as client:
        answer = await client.produce(topic, data)
        assert (answer.error_code, answer.base_offset) == (code, -1)
        assert answer.error_message
        assert (await client.fetch(topic, 0)).high_watermark == 0


async def test_transactional_batches_need_a_transactional_id(
    served: ServedBroker, topic: str
) -> None:
    settings = BatchSettings(
        producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    async with raw(served) as client:
        answer = await client.produce(topic, batch(b"a", settings=settings))
    assert answer.error_code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("version", "code"), [(6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (7, ErrorCode.NONE)]
)
async def test_zstd_needs_version_7(
    served: ServedBroker, topic: str, version: int, code: ErrorCode
) -> None:
    data = batch(b"a", settings=BatchSettings(codec=find_codec("zstd")))
    async with raw(served) as client:
        assert (await client.produce(topic, data, version=version)).error_code is code


async def test_a_batch_above_max_message_bytes_is_too_large(
    served: ServedBroker, topic: str
) -> None:
    name = topic + "-small"
    fits = batch(b"x" * 900)
    create(served, name, 1, {"max.message.bytes": str(len(fits))})
    async with raw(served) as client:
        assert (await client.produce(name, fits)).error_code is ErrorCode.NONE
        answer = await client.produce(name, batch(b"x" * 901))
    assert answer.error_code is ErrorCode.MESSAGE_TOO_LARGE


async def test_the_default_limit_is_kafkas(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        room = 1_048_588 - len(batch(b"")) - 6
        assert (await client.produce(topic, batch(b"x" * room))).error_code is ErrorCode.NONE
        answer = await client.produce(topic, batch(b"x" * (room + 100)))
    assert answer.error_code is ErrorCode.MESSAGE_TOO_LARGE


async def test_timestamps_out_of_bounds_are_refused(served: ServedBroker, topic: str) -> None:
    name = topic + "-bounded"
    bounds: dict[str, str | None] = {
        "message.timestamp.before.max.ms": str(HOUR_MS),
        "message.timestamp.after.max.ms": str(HOUR_MS),
    }
    create(served, name, 1, bounds)
    present = now(served)
    async with raw(served) as client:
        for time_ms, code in [
            (present, ErrorCode.NONE),
            (present - 2 * HOUR_MS, ErrorCode.INVALID_TIMESTAMP),
            (present + 2 * HOUR_MS, ErrorCode.INVALID_TIMESTAMP),
        ]:
            answer = await client.produce(name, batch(b"a", time_ms=time_ms))
            assert answer.error_code is code
            assert (answer.error_message is None) == (code is ErrorCode.NONE)


@pytest.mark.parametrize("codec", CODEC_NAMES)
async def test_compressed_batch_is_stored_unchanged(
    served: ServedBroker, topic: str, codec: str
) -> None:
    sent = batch(*[b"same" * 100] * 50, settings=BatchSettings(codec=find_codec(codec)))
    async with raw(served) as client:
        assert (await client.produce(topic, sent)).error_code is ErrorCode.NONE
        stored = bytes_of(await client.fetch(topic, 0))
    # Offset and leader epoch are the broker's; everything else came back byte for byte.
    assert stored[16:] == sent[16:]
    assert stored[8:12] == sent[8:12]
    [header] = batches.verify(stored)
    assert header.codec.name == codec


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compression_of_librdkafka_is_preserved(
    served: ServedBroker, topic: str, codec: str
) -> None:
    producer = Producer(
        {
            "bootstrap.servers": served.bootstrap,
            "compression.type": codec,
            "linger.ms": 50,
            "enable.idempotence": True,
        }
    )
    for _ in range(1000):
        producer.produce(topic, b"v" * 100, partition=0)
    assert producer.flush(20) == 0
    _assert_kept(served, topic, codec)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compression_of_kafka_python_is_preserved(
    served: ServedBroker, topic: str, codec: str
) -> None:
    producer = KafkaProducer(
        bootstrap_servers=served.bootstrap, compression_type=codec, linger_ms=50
    )
    for _ in range(1000):
        producer.send(topic, b"v" * 100, partition=0)
    producer.flush(20)
    producer.close()
    _assert_kept(served, topic, codec)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_compression_of_aiokafka_is_preserved(
    served: ServedBroker, topic: str, codec: str
) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=served.bootstrap, compression_type=codec, linger_ms=50
    )
    await producer.start()
    try:
        await asyncio.gather(
            *[await producer.send(topic, b"v" * 100, partition=0) for _ in range(1000)]
        )
    finally:
        await producer.stop()
    await asyncio.to_thread(_assert_kept, served, topic, codec)


def _assert_kept(served: ServedBroker, topic: str, codec: str) -> None:
    partition = served.broker.replica.state.topics.by_name[topic].partitions[0]
    assert partition.next_offset == 1000
    assert partition.size_bytes < 30_000

    async def stored() -> bytes:
        async with raw(served) as client:
            return bytes_of(await client.fetch(topic, 0))

    headers = batches.verify(asyncio.run(stored()))
    assert {header.codec.name for header in headers} == {codec}


@pytest.mark.parametrize("sent", ["none", "gzip"])
@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
async def test_codec_of_the_topic_is_used(
    served: ServedBroker, topic: str, sent: str, wanted: str
) -> None:
    name = topic + "-own"
    create(served, name, 1, {"compression.type": wanted})
    values = [b"same" * 100 + b"%d" % number for number in range(200)]
    settings = BatchSettings(
        codec=find_codec(sent), producer_id=77, producer_epoch=0, base_sequence=0
    )
    async with raw(served) as client:
        assert (await client.produce(name, batch(*values, settings=settings))).base_offset == 0
        data = bytes_of(await client.fetch(name, 0))
    [header] = batches.verify(data)
    assert header.codec.name == ("none" if wanted == "uncompressed" else wanted)
    assert (header.producer_id, header.base_sequence, header.record_count) == (77, 0, 200)
    assert [record.value for record in records.read(data, header)] == values


async def test_recompressed_batches_of_a_client_stay_in_order(
    served: ServedBroker, topic: str
) -> None:
    name = topic + "-own"
    create(served, name, 1, {"compression.type": "zstd"})
    requests = []
    for number in range(5):
        # The first takes longest: without an order it would come last, and fail by its sequence.
        size = 1_000_000 if number == 0 else 100
        settings = BatchSettings(producer_id=78, producer_epoch=0, base_sequence=number)
        data = build([Record(b"k", bytes([number]) * size)], settings)
        requests.append(produce_request(name, {0: data}))
    async with raw(served) as client:
        responses = await asyncio.gather(*(client.ask(PRODUCE, 9, request) for request in requests))
    parts = [response.responses[0].partition_responses[0] for response in responses]
    assert [(part.error_code, part.base_offset) for part in parts] == [(0, n) for n in range(5)]


async def test_a_compacted_topic_needs_keys(served: ServedBroker, topic: str) -> None:
    name = topic + "-compacted"
    create(served, name, 1, {"cleanup.policy": "compact"})
    data = build([Record(b"k", b"1"), Record(None, b"2"), Record(b"k", b"3"), Record(None, b"4")])
    async with raw(served) as client:
        answer = await client.produce(name, data)
        assert answer.error_code is ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in answer.record_errors] == [1, 3]
        assert answer.error_message
        assert (await client.produce(name, batch(b"a"))).base_offset == 0


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4"])
async def test_a_decompression_bomb_is_refused(
    served: ServedBroker, topic: str, codec: str
) -> None:
    name = topic + "-compacted"
    create(served, name, 1, {"cleanup.policy": "compact"})
    body = find_codec(codec).compress(bytes(200 * 1024 * 1024))
    [header] = batches.verify(batch(b"a"))
    made = batches.seal(header._replace(attributes=find_codec(codec).id), body) + body
    async with raw(served) as client:
        answer = await client.produce(name, made)
    assert answer.error_code is ErrorCode.MESSAGE_TOO_LARGE


async def test_append_time_is_returned_and_stored(served: ServedBroker, topic: str) -> None:
    name = topic + "-stamped"
    create(served, name, 1, {"message.timestamp.type": "LogAppendTime"})
    before = now(served)
    async with raw(served) as client:
        answer = await client.produce(name, batch(b"a", b"b", time_ms=5))
        data = bytes_of(await client.fetch(name, 0))
    assert before <= answer.log_append_time_ms <= now(served)
    [header] = batches.verify(data)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == answer.log_append_time_ms
    assert {record.timestamp for record in records.read(data, header)} == {
        answer.log_append_time_ms
    }


async def test_topic_created_by_another_broker_is_known_immediately(
    start_two: tuple[ServedBroker, ServedBroker],
) -> None:
    first, second = start_two
    async with raw(second) as client:
        for number in range(20):
            create(first, f"made-{number}")
            answer = await client.produce(f"made-{number}", batch(b"a"))
            assert answer.error_code is ErrorCode.NONE


@pytest.fixture
def start_two(tmp_path: Path) -> Iterator[tuple[ServedBroker, ServedBroker]]:
    settings = BrokerSettings(durability="os")
    with ServedBroker(tmp_path, settings) as first, ServedBroker(tmp_path, settings) as second:
        yield first, second


async def test_draining_broker_names_only_established_leaders(
    start_two: tuple[ServedBroker, ServedBroker],
) -> None:
    first, second = start_two
    create(first, "moving", 40)
    first.broker.services.is_draining = True
    async with raw(first) as client:
        request = produce_request("moving", {n: batch(b"a") for n in range(40)})
        response = await client.ask(PRODUCE, 10, request)
    parts = response.responses[0].partition_responses
    assert {part.error_code for part in parts} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    told = {
        part.index: (part.current_leader.leader_id, part.current_leader.leader_epoch)
        for part in parts
        if part.current_leader is not None
    }
    # If it were killed now and came back, an epoch it had promised would keep clients waiting.
    partitions = first.broker.replica.state.topics.by_name["moving"].partitions
    assert told == {
        partition.index: (second.node_id, partition.leader_epoch)
        for partition in partitions
        if partition.leader == second.node_id
    }
    assert 0 < len(told) < 40
    [endpoint] = response.node_endpoints
    assert (endpoint.node_id, endpoint.port) == (second.node_id, second.port)
    async with raw(second) as client:
        answer = await client.produce("moving", batch(b"a"))
        assert answer.error_code is ErrorCode.NONE


async def test_answers_keep_the_order_of_requests(served: ServedBroker, topic: str) -> None:
    async with raw(served) as client:
        offsets = await asyncio.gather(
            *(_base(client, topic, "no-such" if n % 3 == 0 else topic) for n in range(60))
        )
    assert [offset for offset in offsets if offset >= 0] == list(range(40))


async def _base(client: Raw, topic: str, name: str) -> int:
    return (await client.produce(name, batch(b"a"))).base_offset


def test_disconnecting_client_loses_no_written_record(served: ServedBroker, topic: str) -> None:
    frame = b"".join(request_frame(PRODUCE, 9, 1, None, produce_request(topic, {0: batch(b"a")})))
    with socket.create_connection(("127.0.0.1", served.port)) as client:
        client.sendall(frame)
        assert client.recv(1)

    async def high_watermark() -> int:
        async with raw(served) as other:
            return (await other.fetch(topic, 0)).high_watermark

    assert asyncio.run(high_watermark()) == 1
