"""Scenarios in which other brokers over shared storage lose records or stall."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, Message, Producer

from rookery.errors import ErrorCode
from rookery.log.write.journal import Journal
from rookery.records import recordcodec
from rookery.testing.cluster import AppendFault, FaultyLog
from rookery.testing.servedbroker import ServedBroker
from rookery.testing.wait import PATIENCE_SECONDS
from rookery.wire.messages.delete_topics import DELETE_TOPICS, DeleteTopicsRequest
from tests.broker.raw import Raw, batch, bytes_of, create, forget_tail, raw
from tests.log.faulty import EIO, FaultyDisk

KIBIBYTE = 1024
OK = ErrorCode.NONE
# Each is tried in three files before it is refused.
ATTEMPTS = 3


@pytest.fixture(params=["memory", "disk"])
def settle(request: pytest.FixtureRequest, broker: ServedBroker) -> Callable[[], None]:
    """Have what follows read from memory, or from disk."""
    return (lambda: None) if request.param == "memory" else lambda: forget_tail(broker)


def journal_of(broker: ServedBroker) -> Journal:
    """Return the journal that a broker writes."""
    assert broker.broker.journal is not None
    return broker.broker.journal


def bad_disk(broker: ServedBroker) -> FaultyDisk:
    """Put a disk that fails to order below the journal, which must not have a file yet."""
    journal = journal_of(broker)
    assert journal.current is None
    disk = FaultyDisk()
    journal._appender._disk = disk
    return disk


def bad_log(broker: ServedBroker) -> FaultyLog:
    """Put faults to order between the broker and its cluster log."""

    async def wrap() -> FaultyLog:
        follower = broker.broker.replica._follower
        log = follower.log = FaultyLog(follower.log)
        return log

    return broker.do(wrap())


async def values(client: Raw, topic: str, **limits: int) -> list[bytes | None]:
    """Read a partition from its beginning to its end, as a consumer does."""
    records: list[recordcodec.Record] = []
    while True:
        answer = await client.fetch(topic, len(records), **limits)
        assert answer.error_code is OK
        assert answer.high_watermark >= len(records)
        if answer.high_watermark == len(records):
            return [record.value for record in records]
        more = list(recordcodec.read_all(bytes_of(answer)))
        assert [record.offset for record in more] == list(
            range(len(records), len(records) + len(more))
        )
        assert more, f"stuck at offset {len(records)}"
        records += more


async def produce_at_once(broker: ServedBroker, topic: str, sent: list[bytes]) -> list[bytes]:
    """Send each value on a connection of its own, all at once; return those acknowledged."""

    async def send(value: bytes) -> bytes | None:
        async with raw(broker) as client:
            answer = await client.produce(topic, batch(value))
        assert answer.error_code in {OK, ErrorCode.KAFKA_STORAGE_ERROR}
        return value if answer.error_code is OK else None

    answers = await asyncio.gather(*map(send, sent))
    return [value for value in answers if value is not None]


@pytest.mark.parametrize("call", ["pwritev", "fdatasync"])
async def test_no_record_of_a_failed_flush_is_acknowledged(
    call: str, start: Callable[..., ServedBroker]
) -> None:
    # Peer: of seven requests in one failed flush five were acknowledged, and are unreadable.
    broker = start()
    create(broker, "t")
    disk = bad_disk(broker)
    journal_of(broker)._appender._durability = "disk"
    disk.fail(call, *[EIO] * ATTEMPTS)
    # Too large for an entry's payload, so that the journal has to take them.
    sent = [b"%d " % number * 50 * KIBIBYTE for number in range(7)]

    acked = await produce_at_once(broker, "t", sent)
    refused = [value for value in sent if value not in acked]
    assert refused
    again = await _until_accepted(broker, refused)

    assert not disk.faults[call]
    async with raw(broker) as client:
        stored = await values(client, "t")
    assert sorted(filter(None, stored)) == sorted(acked + again) == sorted(sent)


async def _until_accepted(broker: ServedBroker, refused: list[bytes]) -> list[bytes]:
    """Retry, as a producer does."""
    accepted: list[bytes] = []
    for _ in range(100):
        now = await produce_at_once(
            broker, "t", [value for value in refused if value not in accepted]
        )
        accepted += now
        if len(accepted) == len(refused):
            return accepted
        await asyncio.sleep(0.02)
    raise AssertionError("the broker goes on refusing")


@pytest.mark.parametrize("fault", [AppendFault.NOT_SENT, AppendFault.LOST_ANSWER])
async def test_failed_commit_neither_loses_nor_duplicates_records(
    broker: ServedBroker, fault: AppendFault
) -> None:
    create(broker, "t")
    log = bad_log(broker)
    log.order(fault, fault)
    sent = [b"%d" % number for number in range(7)]

    acked = await produce_at_once(broker, "t", sent)

    async with raw(broker) as client:
        assert sorted(filter(None, await values(client, "t"))) == acked == sent


async def test_consumer_reads_through_many_medium_batches(
    broker: ServedBroker, settle: Callable[[], None]
) -> None:
    # Peer: with 60 batches of 30 KB and fetches of 1 MiB a consumer stays at offset 35.
    create(broker, "t")
    sent = [b"%02d" % number * 15 * KIBIBYTE for number in range(60)]
    async with raw(broker) as client:
        for value in sent:
            assert (await client.produce("t", batch(value))).error_code is OK
        settle()

        assert await values(client, "t", partition_max_bytes=KIBIBYTE * KIBIBYTE) == sent


async def test_batch_above_the_fetch_limit_is_returned_whole(
    broker: ServedBroker, settle: Callable[[], None]
) -> None:
    # Peer: a batch of 300 KB came cut off to a consumer with a limit of 100 KB.
    create(broker, "t")
    sent = [b"%d" % number * 300 * KIBIBYTE for number in range(3)]
    async with raw(broker) as client:
        for value in sent:
            assert (await client.produce("t", batch(value))).error_code is OK
        settle()

        assert await values(client, "t", partition_max_bytes=100 * KIBIBYTE) == sent


async def test_invalid_batches_are_not_stored(
    broker: ServedBroker, settle: Callable[[], None]
) -> None:
    # Peer: all of these were accepted, and the log was corrupt.
    create(broker, "t")
    bad_crc = bytearray(batch(b"flipped"))
    bad_crc[-1] ^= 1
    old = bytearray(batch(b"old"))
    old[16] = 1
    async with raw(broker) as client:
        assert (await client.produce("t", batch(b"before"))).base_offset == 0
        crc, magic = [await client.produce("t", bytes(data)) for data in (bad_crc, old)]
        assert crc.error_code is ErrorCode.CORRUPT_MESSAGE
        assert magic.error_code is ErrorCode.INVALID_RECORD
        two = await client.produce("t", batch(b"first") + batch(b"second"))
        assert two.error_code is ErrorCode.INVALID_RECORD
        assert (await client.produce("t", batch(b"after"))).base_offset == 1
        settle()

        assert await values(client, "t") == [b"before", b"after"]


async def test_recreated_topic_is_empty(broker: ServedBroker, settle: Callable[[], None]) -> None:
    # Peer: the old records were there again, and offsets continued.
    old_id = create(broker, "t")
    async with raw(broker) as client:
        for value in (b"old", b"old " * 50 * KIBIBYTE):
            await client.produce("t", batch(value))
        request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=5_000)
        [gone] = (await client.ask(DELETE_TOPICS, 5, request)).responses
        assert gone.error_code is OK

        assert create(broker, "t") != old_id

        assert await values(client, "t") == []
        assert (await client.produce("t", batch(b"new"))).base_offset == 0
        settle()
        assert await values(client, "t") == [b"new"]


def test_old_librdkafka_reads_its_own_records(broker: ServedBroker) -> None:
    # Peer: kcat of a stable distribution writes an old format there, and cannot read at all.
    kcat = shutil.which("kcat")
    if kcat is None:
        pytest.fail("kcat is not installed; scripts/install-peers does it")
    create(broker, "t")
    sent = b"".join(b"line %d\n" % number for number in range(1_000))

    def run(*args: str, data: bytes = b"") -> bytes:
        command = [kcat or "", "-b", broker.bootstrap, "-t", "t", *args]
        return subprocess.run(
            command, input=data, stdout=subprocess.PIPE, timeout=30, check=True
        ).stdout

    run("-P", data=sent)

    assert run("-C", "-o", "beginning", "-e", "-q") == sent


async def test_an_idempotent_producer_works(broker: ServedBroker) -> None:
    # Peer: a fatal error in the client.
    create(broker, "t")
    errors: list[KafkaError | None] = []

    def told(error: KafkaError | None, _message: Message) -> None:
        errors.append(error)

    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    sent = [b"%d" % number for number in range(100)]
    for value in sent:
        producer.produce("t", value, on_delivery=told)
    assert await asyncio.to_thread(producer.flush, 30) == 0

    assert errors == [None] * len(sent)
    async with raw(broker) as client:
        assert await values(client, "t") == sent


async def test_burst_of_failures_is_reported_with_its_cause(broker: ServedBroker) -> None:
    # Peer: the whole broker refuses produce and fetch for a minute after one burst.
    create(broker, "t")
    disk = bad_disk(broker)
    large = b"large " * 20 * KIBIBYTE
    async with raw(broker) as client:
        assert (await client.produce("t", batch(b"before"))).error_code is OK
        disk.fail("pwritev", *[EIO] * 10)
        refused = 0
        while disk.faults["pwritev"]:
            code = (await client.produce("t", batch(large))).error_code
            assert code is ErrorCode.KAFKA_STORAGE_ERROR
            refused += 1
            # Reads continue, and so do writes that need no journal.
            assert await values(client, "t") == [b"before"] + [b"small"] * (refused - 1)
            assert (await client.produce("t", batch(b"small"))).error_code is OK
        # The disk is well again, and so is the broker as soon as it has looked once more.
        async with asyncio.timeout(PATIENCE_SECONDS):
            code = ErrorCode.KAFKA_STORAGE_ERROR
            while code is not OK:
                code = (await client.produce("t", batch(large))).error_code

        assert await values(client, "t") == [b"before"] + [b"small"] * refused + [large]


@pytest.mark.parametrize("limit", [1, 100, 300, 1_000])
async def test_consumer_can_start_at_any_offset(broker: ServedBroker, limit: int) -> None:
    # As one does after a restart: the start of its batch in the file is not known.
    create(broker, "t")
    sent = [b"%d" % number * 200 * KIBIBYTE for number in range(5)]
    async with raw(broker) as client:
        for value in sent:
            assert (await client.produce("t", batch(value))).error_code is OK
        forget_tail(broker)

        for offset in reversed(range(len(sent))):
            answer = await client.fetch("t", offset, partition_max_bytes=limit * KIBIBYTE)
            got = [
                (record.offset, record.value) for record in recordcodec.read_all(bytes_of(answer))
            ]
            assert got, f"stuck at offset {offset}"
            assert got[0] == (offset, sent[offset])
