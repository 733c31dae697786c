"""Record batches while they fill and are sent, and each partition's queue of them.

These rules keep the records of a partition in order and store each of them once:

- A batch gets its sequence when it is first sent and keeps it over all retries. A broker that has
  already stored it reports a duplicate instead of storing it again (KIP-98).
- After a failure nothing is sent until everything in flight has been answered. Sending then resumes
  with the oldest batch, alone, until it is stored. The first batch of an epoch also goes alone,
  because a broker without state for a producer accepts any sequence from it.
- At most five batches are in flight, all to one broker. A broker remembers no more than five, and
  batches to two brokers would race.
- A batch that is given up leaves a gap in the sequences. Later batches start over in a new epoch
  (KIP-360), but only those that were never sent or were certainly rejected. A batch whose outcome
  is unknown is given up, too, because in a new epoch it could be stored twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple

from rookery.client.settings import ProducerSettings
from rookery.errors import ApiError, Error, ErrorCode
from rookery.model.partition import TopicPartition
from rookery.records import batches
from rookery.records.recordcodec import BatchSettings, Record, build

# The maximum size of a record's lengths, deltas and attributes, in addition to its own bytes.
_RECORD_OVERHEAD: Final = 32
_HEADER_OVERHEAD: Final = 10
_LAST_EPOCH: Final = 32767
_LAST_SEQUENCE: Final = 0x7FFFFFFF
_LAST_TIMESTAMP: Final = 2**62


class RecordLocation(NamedTuple):
    """The location of a stored record."""

    topic: str
    partition: int
    offset: int
    """-1 if the broker did not report it: with acks=0, or for an old duplicate."""
    timestamp: int
    """Milliseconds; the broker's time if the topic uses LogAppendTime, otherwise the record's."""


class Delivery:
    """A record's delivery; wait for it to get the record's location, or the error."""

    __slots__ = ("_batch", "_index", "_timestamp")

    def __init__(self, batch: ProducerBatch, index: int, timestamp: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp = timestamp

    @property
    def is_done(self) -> bool:
        """Whether the outcome is known."""
        return self._batch.settled.done()

    async def wait(self) -> RecordLocation:
        """Wait for the outcome and return the record's location.

        Raises:
            ApiError: the broker rejected the record's batch.
            Unavailable: it could not be delivered in time.
        """
        batch = self._batch
        batch.is_observed = True
        # Shielded: cancelling one waiter must not cancel the others.
        base, append_time = await asyncio.shield(batch.settled)
        offset = base + self._index if base >= 0 else -1
        time = append_time if append_time >= 0 else self._timestamp
        return RecordLocation(batch.place.topic, batch.place.partition, offset, time)


class ProducerBatch:
    """Records that are sent together."""

    __slots__ = (
        "attempts", "count", "data", "deadline_at", "is_full", "is_observed", "opened_at", "order",
        "place", "records", "sequence", "settled", "size",
    )  # fmt: skip

    def __init__(self, place: TopicPartition, order: int, now_ms: int, deadline_at: int) -> None:
        self.place = place
        self.order = order
        self.opened_at = now_ms
        self.deadline_at = deadline_at
        self.records: list[Record] = []
        self.size = batches.HEADER_SIZE
        self.count = 0
        self.is_full = False
        self.data: bytes | None = None
        self.sequence = -1
        self.attempts = 0
        self.is_observed = False
        self.settled: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()

    def add(self, record: Record, size: int) -> Delivery:
        """Add a record; return its delivery."""
        self.records.append(record)
        self.size += size
        self.count += 1
        return Delivery(self, self.count - 1, record.timestamp)

    def succeed(self, base_offset: int, append_time: int) -> None:
        """Report the records' location to all waiters."""
        if not self.settled.done():
            self.settled.set_result((base_offset, append_time))

    def fail(self, error: Error) -> None:
        """Report the error to all waiters."""
        if not self.settled.done():
            self.settled.set_exception(error)
            # Mark the exception as retrieved: there may be no waiter. `flush` reports errors that
            # were not observed.
            self.settled.exception()


class PartitionQueue:
    """The batches of one partition, from the one that is filling to those in flight."""

    def __init__(self, place: TopicPartition, settings: ProducerSettings) -> None:
        self.place = place
        self._settings = settings
        self._has_sequences = settings.has_sequences
        self._next_order = 0
        self._next_sequence = 0
        self._is_confirmed = False
        # The last batch that was given up in this epoch.
        self._gap: int | None = None
        self._failed: list[ProducerBatch] = []
        self.waiting: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        self.node: int = -1
        self.producer_id = -1
        self.producer_epoch = -1
        self.tries = 0
        self.retry_at = 0

    @property
    def is_idle(self) -> bool:
        """Whether no batch is waiting or in flight."""
        return not (self.waiting or self.in_flight or self._failed)

    @property
    def needs_producer_id(self) -> bool:
        """Whether a producer id is required before anything can be sent."""
        return self._has_sequences and self.producer_id < 0

    def append(self, record: Record, size: int, now_ms: int) -> tuple[Delivery, bool]:
        """Add a record to the filling batch; also return whether a new batch was started."""
        is_new = not self.has_room(size)
        if is_new:
            deadline_at = now_ms + self._settings.delivery_timeout_ms
            self.waiting.append(ProducerBatch(self.place, self._next_order, now_ms, deadline_at))
            self._next_order += 1
        batch = self.waiting[-1]
        delivery = batch.add(record, size)
        batch.is_full = batch.size >= self._settings.batch_bytes
        return delivery, is_new

    def has_room(self, size: int) -> bool:
        """Return whether the filling batch has room for that many bytes."""
        if not self.waiting:
            return False
        last = self.waiting[-1]
        return not last.is_full and last.size + size <= self._settings.batch_bytes

    def ready_at(self) -> int | None:
        """Return when the first batch can be sent; None if time alone does not decide it."""
        if not self.waiting or self._failed or len(self.in_flight) >= self._window():
            return None
        head = self.waiting[0]
        if self._gap is not None and head.order > self._gap and self.in_flight:
            return None
        if head.is_full or head.attempts or len(self.waiting) > 1:
            return self.retry_at
        return max(self.retry_at, head.opened_at + self._settings.linger_ms)

    def is_ready(self, now_ms: int) -> bool:
        """Return whether the first batch can be sent now."""
        at = self.ready_at()
        return at is not None and at <= now_ms

    def take(self, node: int) -> ProducerBatch | None:
        """Take the first batch, encoded, for a request to that broker."""
        if self.ready_at() is None or (self.in_flight and self.node != node):
            return None
        if self._gap is not None and self.waiting[0].order > self._gap:
            self._start_epoch()
            if self.needs_producer_id:
                return None
        batch = self.waiting.popleft()
        batch.is_full = True
        if self._has_sequences and batch.sequence < 0:
            batch.sequence = self._take_sequences(batch.count)
        if batch.data is None:
            batch.data = build(batch.records, self._batch_settings(batch))
            batch.records = []
        batch.attempts += 1
        self.in_flight.append(batch)
        self.node = node
        return batch

    def on_stored(self, batch: ProducerBatch) -> None:
        """Continue after a batch that was stored."""
        self.in_flight.remove(batch)
        self._is_confirmed = True
        self.tries = self.retry_at = 0
        self._settle()

    def on_failed(self, batch: ProducerBatch, retry_at: int) -> None:
        """Keep the batch for another try."""
        self.in_flight.remove(batch)
        self._failed.append(batch)
        self._is_confirmed = False
        self.retry_at = max(self.retry_at, retry_at)
        self._settle()

    def on_given_up(self, batch: ProducerBatch) -> None:
        """Continue without a batch that was given up."""
        if batch in self.in_flight:
            self.in_flight.remove(batch)
        if batch.sequence >= 0:
            self._gap = max(batch.order, self._gap or 0)
        self._is_confirmed = False
        self._settle()

    def is_first(self, batch: ProducerBatch) -> bool:
        """Return whether everything before the batch is known to be stored."""
        if self._gap is not None and self._gap < batch.order:
            return False
        return not any(other.order < batch.order for other in (*self.in_flight, *self._failed))

    def drop_expired(self, now_ms: int) -> list[ProducerBatch]:
        """Remove expired batches that are not in flight; the caller gives them up."""
        if self.in_flight or not self.waiting or self.waiting[0].deadline_at > now_ms:
            return []
        in_doubt = self.waiting[0].attempts > 0
        dropped: list[ProducerBatch] = []
        while self.waiting and (
            self.waiting[0].deadline_at <= now_ms or (in_doubt and self.waiting[0].attempts)
        ):
            dropped.append(self.waiting.popleft())
        return dropped

    def drop_all(self) -> list[ProducerBatch]:
        """Remove all batches that are not in flight."""
        dropped = [*self._failed, *self.waiting]
        self._failed = []
        self.waiting.clear()
        return dropped

    def restart(self, producer_id: int, producer_epoch: int) -> None:
        """Restart the sequences for another producer id."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self._next_sequence, self._gap, self._is_confirmed = 0, None, False
        for batch in self.waiting:
            self._renumber(batch)

    def _window(self) -> int:
        # Without sequences a broker cannot detect batches that arrive out of order.
        keeps_order = self._has_sequences or not self._settings.acks
        return self._settings.max_in_flight if keeps_order and self._is_confirmed else 1

    def _settle(self) -> None:
        """Put failed batches back to the front, once no batch is in flight."""
        if not self.in_flight and self._failed:
            self._failed.sort(key=lambda batch: batch.order)
            self.waiting.extendleft(reversed(self._failed))
            self._failed = []

    def _take_sequences(self, count: int) -> int:
        first = self._next_sequence
        self._next_sequence = (first + count) & _LAST_SEQUENCE
        return first

    def _start_epoch(self) -> None:
        if self.producer_epoch >= _LAST_EPOCH:
            self.producer_id = -1
        else:
            self.restart(self.producer_id, self.producer_epoch + 1)

    def _renumber(self, batch: ProducerBatch) -> None:
        if batch.sequence < 0 or batch.data is None:
            return
        batch.sequence = self._take_sequences(batch.count)
        header = batches.parse(batch.data)._replace(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=batch.sequence,
        )
        batch.data = b"".join(batches.restamp(batch.data, header))

    def _batch_settings(self, batch: ProducerBatch) -> BatchSettings:
        return BatchSettings(
            codec=self._settings.codec,
            level=self._settings.compression_level,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=batch.sequence,
        )


def record_size(record: Record) -> int:
    """Return the maximum number of bytes that a record takes in a batch.

    Raises:
        TypeError: a part of the record is not bytes; checked here, where the caller can fix it.
        ApiError: INVALID_TIMESTAMP.
    """
    key, value, headers, timestamp, _ = record
    size = _RECORD_OVERHEAD + _size("key", key) + _size("value", value)
    for name, content in headers:
        if not isinstance(name, str):
            raise TypeError(f"a header's name must be text, not {type(name).__name__}")
        size += _HEADER_OVERHEAD + len(name) * 4 + _size("header", content)
    if not -1 <= timestamp <= _LAST_TIMESTAMP:
        raise ApiError(
            ErrorCode.INVALID_TIMESTAMP,
            f"a timestamp is in milliseconds since 1970, or -1 for now; {timestamp} is not",
        )
    return size


def _size(part: str, content: bytes | None) -> int:
    if content is None:
        return 0
    if not isinstance(content, bytes):
        raise TypeError(
            f"a record's {part} must be bytes or None, not {type(content).__name__}; "
            "encode it first"
        )
    return len(content)
