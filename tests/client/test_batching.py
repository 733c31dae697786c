"""The rules of a partition's queue, case by case."""

from __future__ import annotations

import pytest

from rookery.client.produce.producerbatch import PartitionQueue, ProducerBatch, record_size
from rookery.client.settings import ACKS_LEADER, ProducerSettings
from rookery.errors import ApiError, Unavailable
from rookery.model.partition import TopicPartition
from rookery.records import batches
from rookery.records.recordcodec import Record, read

PLACE = TopicPartition("birds", 3)
NODE = 1


def make_queue(settings: ProducerSettings | None = None) -> PartitionQueue:
    queue = PartitionQueue(PLACE, settings or ProducerSettings(batch_bytes=1))
    queue.restart(77, 0)
    return queue


def add(queue: PartitionQueue, count: int, now: int = 0) -> None:
    """Add batches of one record each."""
    for number in range(count):
        record = Record(None, b"%d" % number, (), 5)
        queue.append(record, record_size(record), now)


def take(queue: PartitionQueue, node: int = NODE) -> ProducerBatch:
    batch = queue.take(node)
    assert batch is not None
    return batch


def confirmed_queue(count: int) -> PartitionQueue:
    """Make a queue whose first batch has been stored."""
    queue = make_queue()
    add(queue, count + 1)
    queue.on_stored(take(queue))
    return queue


def stamp(batch: ProducerBatch) -> tuple[int, int, int]:
    header = batches.validate(batch.data or b"")[0]
    assert header.base_sequence == batch.sequence
    return header.producer_id, header.producer_epoch, header.base_sequence


async def test_records_accumulate_until_the_batch_is_full() -> None:
    queue = make_queue(ProducerSettings(batch_bytes=500, linger_ms=9))
    add(queue, 20, now=100)

    sizes = [batch.size for batch in queue.waiting]
    assert len(sizes) > 1
    assert max(sizes) <= 500
    assert sum(batch.count for batch in queue.waiting) == 20


async def test_a_lone_batch_waits_for_more_records() -> None:
    queue = make_queue(ProducerSettings(linger_ms=9))
    add(queue, 1, now=100)
    assert queue.ready_at() == 109
    add(queue, 1, now=105)
    assert queue.ready_at() == 109


async def test_record_larger_than_a_batch_has_its_own_batch() -> None:
    queue = make_queue(ProducerSettings(batch_bytes=100))
    large = Record(None, bytes(1000))
    queue.append(large, record_size(large), 0)
    add(queue, 1)

    assert [batch.count for batch in queue.waiting] == [1, 1]
    assert queue.waiting[0].is_full


async def test_sent_batch_holds_the_appended_records() -> None:
    queue = make_queue(ProducerSettings(compression="gzip"))
    records = [
        Record(b"k", b"v", (("h", b"1"), ("n", None)), 5),
        Record(None, None, (), 6),
    ]
    for record in records:
        queue.append(record, record_size(record), 0)

    batch = take(queue)
    data = batch.data or b""
    decoded = list(read(data, batches.validate(data)[0]))
    assert [row._replace(offset=-1) for row in decoded] == records


async def test_first_batch_of_an_epoch_is_sent_alone() -> None:
    queue = make_queue()
    add(queue, 3)
    first = take(queue)

    assert queue.take(NODE) is None
    queue.on_stored(first)
    assert [take(queue).sequence, take(queue).sequence] == [1, 2]


async def test_no_more_than_five_are_in_flight() -> None:
    queue = confirmed_queue(10)
    for _ in range(5):
        take(queue)

    assert queue.ready_at() is None
    assert queue.take(NODE) is None


async def test_partition_is_not_in_flight_to_two_brokers() -> None:
    queue = confirmed_queue(2)
    first = take(queue)

    assert queue.take(NODE + 1) is None
    queue.on_stored(first)
    assert queue.take(NODE + 1) is not None


async def test_failed_batches_are_resent_in_order_with_the_same_sequences() -> None:
    queue = confirmed_queue(4)
    flight = [take(queue) for _ in range(3)]
    before = [stamp(batch) for batch in flight]
    # The answers to later ones may be good or bad; nothing is sent before the last has come.
    queue.on_failed(flight[2], retry_at=50)
    queue.on_failed(flight[0], retry_at=40)
    assert queue.ready_at() is None
    queue.on_failed(flight[1], retry_at=40)

    assert queue.ready_at() == 50
    again = []
    for batch in flight:
        assert take(queue) is batch
        again.append(stamp(batch))
        queue.on_stored(batch)
    assert again == before
    assert stamp(take(queue)) == (77, 0, 4)


async def test_first_batch_after_a_failure_is_sent_alone() -> None:
    queue = confirmed_queue(2)
    first, second = take(queue), take(queue)
    queue.on_failed(first, 0)
    queue.on_failed(second, 0)

    assert take(queue) is first
    assert queue.take(NODE) is None


async def test_batches_after_an_abandoned_one_get_a_new_epoch() -> None:
    queue = confirmed_queue(4)
    refused, second, third = (take(queue) for _ in range(3))
    queue.on_given_up(refused)
    assert not queue.is_first(second), "out of sequence is what must come now"
    queue.on_failed(second, 0)
    queue.on_failed(third, 0)

    assert take(queue) is second
    assert stamp(second) == (77, 1, 0)
    assert queue.take(NODE) is None, "the first of an epoch goes alone"
    queue.on_stored(second)
    assert stamp(take(queue)) == (77, 1, 1)
    assert stamp(take(queue)) == (77, 1, 2)


async def test_batch_before_an_abandoned_one_keeps_its_epoch() -> None:
    queue = confirmed_queue(3)
    silent, refused, later = (take(queue) for _ in range(3))
    queue.on_given_up(refused)
    queue.on_failed(silent, 0)
    queue.on_failed(later, 0)

    assert take(queue) is silent
    assert stamp(silent) == (77, 0, 1), "it may be stored already: only so will that be seen"
    assert queue.take(NODE) is None
    queue.on_stored(silent)
    assert take(queue) is later
    assert stamp(later) == (77, 1, 0)


async def test_new_producer_id_is_needed_after_the_last_epoch() -> None:
    queue = make_queue()
    queue.restart(77, 32767)
    add(queue, 2)
    queue.on_given_up(take(queue))

    assert queue.take(NODE) is None
    assert queue.needs_producer_id
    queue.restart(78, 0)
    assert stamp(take(queue)) == (78, 0, 0)


async def test_sequences_wrap_around() -> None:
    queue = make_queue()
    queue._next_sequence = 0x7FFFFFFF
    add(queue, 2)
    first = take(queue)
    queue.on_stored(first)

    assert (first.sequence, take(queue).sequence) == (0x7FFFFFFF, 0)


async def test_first_batch_in_line_is_recognised() -> None:
    queue = confirmed_queue(3)
    first, second = take(queue), take(queue)

    assert queue.is_first(first)
    assert not queue.is_first(second)
    queue.on_stored(first)
    assert queue.is_first(second)
    queue.on_failed(second, 0)
    assert queue.is_first(take(queue))


async def test_expired_batch_is_dropped_with_later_unacknowledged_batches() -> None:
    queue = make_queue(ProducerSettings(batch_bytes=1, delivery_timeout_ms=100))
    add(queue, 1, now=0)
    add(queue, 2, now=50)
    first = take(queue)
    queue.on_stored(first)
    second, third = take(queue), take(queue)
    queue.on_failed(second, 0)
    queue.on_failed(third, 0)
    add(queue, 1, now=120)

    assert queue.drop_expired(149) == []
    # The third has time left, but may be stored: in a new epoch it could be stored twice.
    third.deadline_at = 1_000
    assert queue.drop_expired(150) == [second, third]
    queue.on_given_up(second)
    queue.on_given_up(third)
    assert stamp(take(queue)) == (77, 1, 0)


async def test_batches_in_flight_do_not_expire() -> None:
    queue = make_queue(ProducerSettings(batch_bytes=1, delivery_timeout_ms=100))
    add(queue, 2)
    take(queue)

    assert queue.drop_expired(10_000) == []


async def test_without_sequences_one_batch_in_flight_keeps_the_order() -> None:
    queue = PartitionQueue(PLACE, ProducerSettings(batch_bytes=1, acks=ACKS_LEADER))
    add(queue, 3)
    first = take(queue)
    assert queue.take(NODE) is None
    queue.on_stored(first)
    second = take(queue)
    assert queue.take(NODE) is None
    assert batches.validate(second.data or b"")[0].producer_id == -1


async def test_each_record_gets_its_offset() -> None:
    queue = make_queue(ProducerSettings())
    deliveries = [queue.append(Record(None, b"x", (), 9), 10, 0)[0] for _ in range(3)]
    batch = take(queue)
    batch.succeed(100, -1)

    receipts = [await delivery.wait() for delivery in deliveries]
    assert [(row.offset, row.timestamp) for row in receipts] == [(100, 9), (101, 9), (102, 9)]


async def test_each_record_gets_the_failure() -> None:
    queue = make_queue(ProducerSettings())
    deliveries = [queue.append(Record(None, b"x", (), 9), 10, 0)[0] for _ in range(2)]
    take(queue).fail(Unavailable("no"))

    for delivery in deliveries:
        with pytest.raises(Unavailable, match="no"):
            await delivery.wait()


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (Record(None, "text"), "value must be bytes or None, not str; encode it first"),  # type: ignore[arg-type] # that is the point
        (Record(7, b""), "key must be bytes or None, not int"),  # type: ignore[arg-type] # likewise
        (Record(None, b"", (("name", "text"),)), "header must be bytes or None, not str"),  # type: ignore[arg-type] # likewise
        (Record(None, b"", ((b"name", b""),)), "name must be text, not bytes"),  # type: ignore[arg-type] # likewise
    ],
)
def test_key_or_value_that_is_not_bytes_is_refused(record: Record, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        record_size(record)


def test_invalid_timestamp_is_refused() -> None:
    with pytest.raises(ApiError, match="INVALID_TIMESTAMP: a timestamp is in milliseconds"):
        record_size(Record(None, b"", (), -2))
