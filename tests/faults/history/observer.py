"""Clients that only read: ends of partitions, offsets of groups, and all records."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from rookery.client.client import Client
from rookery.client.views.transactions import list_producers, list_transactions
from rookery.errors import Error
from rookery.testing.wait import wait_until
from tests.crash.bounded import within
from tests.faults.history.clients import admin, lone_reader
from tests.faults.history.events import COMMITTED, UNCOMMITTED, History, Op, Place, State
from tests.faults.history.worker import Worker

T = TypeVar("T")

PATIENCE: Final = 180.0
"""The most seconds after the last fault until all readers are at the end."""
_LOOK_SECONDS: Final = 0.5
_ANSWER_SECONDS: Final = 10.0
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_LEVELS: Final = {
    UNCOMMITTED: IsolationLevel.READ_UNCOMMITTED,
    COMMITTED: IsolationLevel.READ_COMMITTED,
}


class StuckError(Exception):
    """Something did not happen in time, although no fault is active."""


class Observer(Worker):
    """Asks repeatedly."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        history: History,
        seed: int,
        places: list[Place],
        groups: list[str],
    ) -> None:
        super().__init__(name, bootstrap, history, seed)
        self._asking = Asking(name, bootstrap, history)
        self._places = places
        self._groups = groups

    def live(self) -> None:
        """Ask until it must stop."""
        while not self.stopping.wait(_LOOK_SECONDS):
            for isolation in (COMMITTED, UNCOMMITTED):
                self._asking.ends(self._places, isolation)
            for group in self._groups:
                self._asking.offsets(group, self._places)
        self._asking.close()


class Asking:
    """Requests whose answers are recorded."""

    def __init__(self, who: str, bootstrap: str, history: History) -> None:
        self._who = who
        self._history = history
        self._bootstrap = bootstrap
        self._admin: AdminClient = admin(bootstrap)
        self._groups: dict[str, Consumer] = {}

    def ends(self, places: Iterable[Place], isolation: str) -> dict[Place, int]:
        """Return the ends of partitions, except those without an answer now."""
        began = self._history.now()
        wanted = {TopicPartition(*place): _LATEST for place in places}
        futures = self._admin.list_offsets(
            wanted, isolation_level=_LEVELS[isolation], request_timeout=_ANSWER_SECONDS
        )
        ends = {}
        for partition, future in futures.items():
            place = Place(partition.topic, partition.partition)
            with suppress(KafkaException):
                offset = future.result(2 * _ANSWER_SECONDS).offset
                # For a broker that does not answer, the client returns no number and no error.
                if offset >= 0:
                    ends[place] = offset
        self._history.add(self._who, Op.SEEN_ENDS, began=began, isolation=isolation, offsets=ends)
        return ends

    def offsets(self, group: str, places: list[Place]) -> dict[Place, int] | None:
        """Return what a group has committed, -1 for nothing; None if there is no answer now."""
        if group not in self._groups:
            # Not by the admin client, which fails when the coordinator has moved.
            self._groups[group] = lone_reader(self._bootstrap, COMMITTED, group)
        began = self._history.now()
        wanted = [TopicPartition(*place) for place in places]
        try:
            answer = self._groups[group].committed(wanted, _ANSWER_SECONDS)
        except KafkaException:
            return None
        offsets = {
            Place(partition.topic, partition.partition): max(partition.offset, -1)
            for partition in answer
            if not partition.error
        }
        self._history.add(
            self._who, Op.SEEN_OFFSETS, State.OK, began=began, group=group, offsets=offsets
        )
        return offsets

    def close(self) -> None:
        """Close the clients."""
        for group, consumer in self._groups.items():
            within(consumer.close, f"the end of a reader of group {group}")

    def read_all(self, places: list[Place], isolation: str) -> dict[Place, int]:
        """Read partitions from their beginning; return the offset after the last record of each.

        Raises:
            StuckError: it takes too long.
        """
        consumer = lone_reader(self._bootstrap, isolation)
        try:
            consumer.assign([TopicPartition(*place, 0) for place in places])
            records_by_place = _read_to_ends(consumer, places)
        finally:
            within(consumer.close, "the end of the last reader")
        for place, records in records_by_place.items():
            self._history.add(
                self._who, Op.FINAL, isolation=isolation, place=place, records=tuple(records)
            )
        return {place: records[-1][0] + 1 for place, records in records_by_place.items() if records}

    def wait_until_settled(self, places: list[Place]) -> None:
        """Wait until no transaction is open.

        Raises:
            StuckError: one stays open, or no broker answers.
        """

        def open_places() -> dict[Place, tuple[int | None, int | None]]:
            committed, latest = (self.ends(places, level) for level in (COMMITTED, UNCOMMITTED))
            ends = {place: (committed.get(place), latest.get(place)) for place in places}
            return {place: pair for place, pair in ends.items() if not is_settled(*pair)}

        def is_settled(committed: int | None, latest: int | None) -> bool:
            return committed is not None and committed == latest

        try:
            wait_for(open_places, "the end of the last transaction", accepts=operator.not_)
        except StuckError as error:
            error.add_note(asyncio.run(describe_transactions(self._bootstrap, places)))
            raise

    def wait_until_committed(self, group: str, ends: dict[Place, int]) -> None:
        """Wait until a group has committed the end of partitions.

        Raises:
            StuckError: it does not.
        """

        def offsets() -> dict[Place, int]:
            return self.offsets(group, list(ends)) or {}

        def is_at_end(offsets: dict[Place, int]) -> bool:
            return all(offsets.get(place, -1) >= end for place, end in ends.items())

        wait_for(offsets, f"group {group} at the ends {ends}", accepts=is_at_end)


def wait_for(condition: Callable[[], T], what: str, *, accepts: Callable[[T], object]) -> None:
    """Return when a value is accepted.

    Raises:
        StuckError: none is; the message has the last one.
    """
    try:
        wait_until(condition, what, accepts=accepts, seconds=PATIENCE, pause=_LOOK_SECONDS)
    except TimeoutError as error:
        raise StuckError(str(error)) from None


async def describe_transactions(bootstrap: str, places: Iterable[Place]) -> str:
    """Return the transactional ids and the producers with an open transaction, for a failure."""
    try:
        async with Client(bootstrap) as client:
            ids = await list_transactions(client)
            topics = sorted({place.topic for place in places})
            producers = [each for topic in topics for each in await list_producers(client, topic)]
    except Error as error:
        return f"the transactions cannot be listed: {error}"
    held = [producer for producer in producers if producer.open_from is not None]
    return "\n".join(map(repr, (*ids, *held)))


def _read_to_ends(consumer: Consumer, places: list[Place]) -> dict[Place, list[tuple[int, str]]]:
    records: dict[Place, list[tuple[int, str]]] = {place: [] for place in places}
    left = set(places)

    def read_on() -> set[Place]:
        for message in consumer.consume(1_000, 0.2):
            place = Place(message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is None:
                records[place].append((message.offset() or 0, (message.value() or b"").decode()))
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(place)
        return left

    wait_for(read_on, "partitions that are not read to the end", accepts=operator.not_)
    return records
