"""A client that writes without a pause, and records the acknowledgements that it got.

Every partition gets the numbers 0, 1, 2 …, each in a value that can be computed from it. So what is
read back says by itself whether something was lost, doubled, reordered or changed.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Mapping
from contextlib import suppress
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from rookery.testing.wait import PATIENCE_SECONDS, wait_until
from tests.crash.bounded import within

_QUIET: Final = {"log_level": 0, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100}
_FILLING: Final = random.Random(7).randbytes(1 << 16)
_READ_AGAIN: Final = 2_000


def value_of(partition: int, number: int) -> bytes:
    """Return what the record with this number holds: most are short, some fill a flush alone."""
    mixed = (number * 2_654_435_761 + partition) & 0xFFFFFFFF
    size = 30_000 + mixed % 20_000 if mixed % 97 == 0 else mixed % 900
    return b"%d:%d:" % (partition, number) + _FILLING[:size]


class Load:
    """An idempotent producer at work in the background."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, seed: int, **options: object
    ) -> None:
        """Prepare; it begins in a `with` block, whose end flushes what is under way.

        Options are librdkafka's, with underscores for its dots.
        """
        self.topic = topic
        self.partitions = partitions
        self.failures: list[str] = []
        self._acked: list[dict[int, int]] = [{} for _ in range(partitions)]
        self._sent = [0] * partitions
        self._random = random.Random(seed)
        self._lock = Lock()
        self._stopping = Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 100,
                "error_cb": self._error,
                **_QUIET,
                **{name.replace("_", "."): value for name, value in options.items()},
            }
        )
        self._thread = Thread(target=self._work, name="load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.finish() if kind is None else self._stopping.set()

    def acked(self) -> list[dict[int, int]]:
        """Return the offset of every number that was acknowledged, by partition."""
        with self._lock:
            return [dict(offsets) for offsets in self._acked]

    def count(self) -> int:
        """Return how many were acknowledged."""
        with self._lock:
            return sum(map(len, self._acked))

    def wait_for(self, more: int) -> None:
        """Wait until a given number of further records are acknowledged in every partition."""
        goals = [len(offsets) + more for offsets in self._acked]

        def is_there(counts: list[int]) -> bool:
            return all(count >= goal for count, goal in zip(counts, goals, strict=True))

        def counts() -> list[int]:
            if self.failures:
                raise AssertionError(f"the load has failed: {self.failures[:3]}")
            return [len(offsets) for offsets in self._acked]

        wait_until(counts, f"acknowledged records {goals}", accepts=is_there)

    def finish(self) -> None:
        """Stop sending, and wait for the records in flight."""
        self._stopping.set()
        self._thread.join(PATIENCE_SECONDS)
        if self._thread.is_alive():
            raise TimeoutError("the load does not come to an end")
        left = self._producer.flush(PATIENCE_SECONDS)
        if left or self.failures:
            raise TimeoutError(f"{left} records were never answered: {self.failures[:3]}")

    def _work(self) -> None:
        while not self._stopping.is_set():
            # Now a trickle, now a burst: small flushes ride in the entry, large ones do not.
            for _ in range(self._random.choice((1, 2, 5, 100))):
                self._send(self._random.randrange(self.partitions))
            self._producer.poll(self._random.random() * 0.06)
            while len(self._producer) > 300 and not self._stopping.is_set():
                self._producer.poll(0.05)

    def _send(self, partition: int) -> None:
        number = self._sent[partition]
        self._sent[partition] = number + 1
        self._producer.produce(
            self.topic,
            value_of(partition, number),
            partition=partition,
            on_delivery=lambda error, message: self._delivered(number, error, message),
        )

    def _delivered(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(f"{message.partition()}/{number}: {error}")
            return
        with self._lock:
            self._acked[message.partition() or 0][number] = message.offset() or 0

    def _error(self, error: KafkaError) -> None:
        if error.fatal():
            self.failures.append(str(error))


def read_all(
    bootstrap: str, topic: str, partitions: int, known: list[list[int]] | None = None
) -> list[list[int]]:
    """Return the numbers in every partition, by offset; each value is checked.

    Of what is known already only the last part is read again, if it is given.
    """
    options: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "reader",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 10,
        "fetch.error.backoff.ms": 10,
        "queued.max.messages.kbytes": 65_536,
        **_QUIET,
    }
    known = known or [[] for _ in range(partitions)]
    numbers = [read_before[: max(0, len(read_before) - _READ_AGAIN)] for read_before in known]
    consumer = Consumer(options)
    try:
        ends = [_end(consumer, TopicPartition(topic, at)) for at in range(partitions)]
        consumer.assign(
            [TopicPartition(topic, at, len(values)) for at, values in enumerate(numbers)]
        )
        _read_to(ends, consumer, numbers)
    finally:
        within(consumer.close, "the end of the reader")
    return numbers


def _end(consumer: Consumer, place: TopicPartition) -> int:
    """Ask where a partition ends.

    An empty fetch proves nothing: the broker that answers may lag the one that acknowledged.
    """

    def ask() -> list[int]:
        try:
            _, end = consumer.get_watermark_offsets(place, timeout=10)
        except KafkaException as error:
            if not _is_passing(error.args[0]):
                raise
            return []
        return [end]

    [end] = wait_until(ask, f"the end of partition {place.partition}")
    return end


def _read_to(ends: list[int], consumer: Consumer, numbers: list[list[int]]) -> None:
    def left() -> list[int]:
        return [at for at, end in enumerate(ends) if len(numbers[at]) < end]

    def read_on() -> list[int]:
        for message in consumer.consume(1_000, 0.2):
            partition = message.partition() or 0
            error = message.error()
            if error is None:
                numbers[partition].append(_checked(message, len(numbers[partition])))
            elif not _is_passing(error):
                raise KafkaException(error)
        return left()

    if left():
        wait_until(read_on, "partitions that are not read to their ends", accepts=operator.not_)


def _is_passing(error: KafkaError) -> bool:
    return error.retriable() or error.code() in _PASSING


# Errors that a client may get while the brokers come back.
_PASSING: Final = frozenset(
    (
        KafkaError._ALL_BROKERS_DOWN,
        # The broker that was asked left the metadata before it answered.
        KafkaError._DESTROY_BROKER,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    )
)


def _checked(message: Message, offset: int) -> int:
    value, partition = message.value() or b"", message.partition() or 0
    assert message.offset() == offset, f"offset {offset} is missing in partition {partition}"
    number = -1
    with suppress(ValueError, IndexError):
        number = int(value.split(b":", 2)[1])
    assert value == value_of(partition, number), f"partition {partition}, {offset}: wrong bytes"
    return number


def check(
    before: list[list[int]],
    now: list[list[int]],
    acked: list[Mapping[int, int]] | list[dict[int, int]],
) -> None:
    """Compare the records read before, those read now, and the acknowledged ones."""
    for partition, numbers in enumerate(now):
        old = before[partition]
        assert numbers[: len(old)] == old, f"partition {partition}: offsets changed their meaning"
        # Idempotent: every number once, in order, without a hole.
        assert numbers == list(range(len(numbers))), _first_wrong(partition, numbers)
        for number, offset in acked[partition].items():
            assert offset < len(numbers), f"partition {partition}: acked {number} was lost"
            assert numbers[offset] == number, f"partition {partition}: {offset} is not {number}"


def verify(bootstrap: str, load: Load, before: list[list[int]] | None = None) -> list[list[int]]:
    """Read everything, compare it with the acknowledged records, and return it."""
    acked = load.acked()  # first: more may be promised while we read
    now = read_all(bootstrap, load.topic, load.partitions)
    check(before or [[] for _ in range(load.partitions)], now, acked)
    return now


def _first_wrong(partition: int, numbers: list[int]) -> str:
    wrong = next(i for i, number in enumerate(numbers) if i != number)
    return f"partition {partition}, offset {wrong}: {numbers[max(0, wrong - 3) : wrong + 4]}"
