"""Whoever only asks: for the ends of partitions, for the offsets of groups, for all there is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic, sleep
from typing import Final

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.faults.history.clients import admin, lone_reader
from tests.faults.history.events import COMMITTED, UNCOMMITTED, History, Op, Place, State
from tests.faults.history.worker import Worker

PATIENCE: Final = 60.0
"""How soon everything must be at its end after the last fault."""
_LOOK_SECONDS: Final = 0.5
_ANSWER_SECONDS: Final = 10.0
_LATEST: Final = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_LEVELS: Final = {
    UNCOMMITTED: IsolationLevel.READ_UNCOMMITTED,
    COMMITTED: IsolationLevel.READ_COMMITTED,
}


class StuckError(Exception):
    """Something did not come in time, though nothing is broken any more."""


class Observer(Worker):
    """Asks again and again."""

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
        """Ask until it shall stop."""
        while not self.stopping.wait(_LOOK_SECONDS):
            for isolation in (COMMITTED, UNCOMMITTED):
                self._asking.ends(self._places, isolation)
            for group in self._groups:
                self._asking.offsets(group, self._places)
        self._asking.close()


class Asking:
    """Questions, whose answers are written down."""

    def __init__(self, who: str, bootstrap: str, history: History) -> None:
        self._who = who
        self._history = history
        self._bootstrap = bootstrap
        self._admin: AdminClient = admin(bootstrap)
        self._groups: dict[str, Consumer] = {}

    def ends(self, places: Iterable[Place], isolation: str) -> dict[Place, int]:
        """Return the ends of partitions; without those for which there is no answer now."""
        began = self._history.now()
        wanted = {TopicPartition(*place): _LATEST for place in places}
        futures = self._admin.list_offsets(
            wanted, isolation_level=_LEVELS[isolation], request_timeout=_ANSWER_SECONDS
        )
        found = {}
        for partition, future in futures.items():
            place = Place(partition.topic, partition.partition)
            with suppress(KafkaException):
                offset = future.result().offset
                # Of a broker that does not answer the client says neither a number nor an error.
                if offset >= 0:
                    found[place] = offset
        self._history.add(self._who, Op.SEEN_ENDS, began=began, isolation=isolation, offsets=found)
        return found

    def offsets(self, group: str, places: list[Place]) -> dict[Place, int] | None:
        """Return what a group has committed, -1 for nothing; None if there is no answer now."""
        if group not in self._groups:
            # Not by the admin client: it falls over an answer that the coordinator has moved.
            self._groups[group] = lone_reader(self._bootstrap, COMMITTED, group)
        began = self._history.now()
        wanted = [TopicPartition(*place) for place in places]
        try:
            answer = self._groups[group].committed(wanted, _ANSWER_SECONDS)
        except KafkaException:
            return None
        found = {
            Place(one.topic, one.partition): max(one.offset, -1) for one in answer if not one.error
        }
        self._history.add(
            self._who, Op.SEEN_OFFSETS, State.OK, began=began, group=group, offsets=found
        )
        return found

    def close(self) -> None:
        """Close what was opened to ask."""
        for consumer in self._groups.values():
            consumer.close()

    def read_all(self, places: list[Place], isolation: str) -> dict[Place, int]:
        """Read partitions from their beginning; return the offset behind the last record of each.

        Raises:
            StuckError: it takes too long.
        """
        consumer = lone_reader(self._bootstrap, isolation)
        try:
            consumer.assign([TopicPartition(*place, 0) for place in places])
            found = _read_to_ends(consumer, places)
        finally:
            consumer.close()
        for place, records in found.items():
            self._history.add(
                self._who, Op.FINAL, isolation=isolation, place=place, records=tuple(records)
            )
        return {place: records[-1][0] + 1 for place, records in found.items() if records}

    def wait_until_settled(self, places: list[Place]) -> None:
        """Wait until no transaction is open.

        Raises:
            StuckError: one stays open, or nobody answers.
        """

        def is_settled() -> bool:
            seen = [self.ends(places, isolation) for isolation in _LEVELS]
            return seen[0] == seen[1] and len(seen[0]) == len(places)

        wait_for(is_settled, "the end of the last transaction")

    def wait_until_committed(self, group: str, ends: dict[Place, int]) -> None:
        """Wait until a group has come to the end of partitions.

        Raises:
            StuckError: it does not.
        """

        def is_at_end() -> bool:
            offsets = self.offsets(group, list(ends)) or {}
            return all(offsets.get(place, -1) >= end for place, end in ends.items())

        wait_for(is_at_end, f"group {group} at the ends {ends}")


def wait_for(holds: Callable[[], bool], what: str) -> None:
    """Return when something holds.

    Raises:
        StuckError: it never does.
    """
    deadline = monotonic() + PATIENCE
    while not holds():
        if monotonic() > deadline:
            raise StuckError(f"{what}: this has not come within {PATIENCE:.0f} s")
        sleep(_LOOK_SECONDS)


def _read_to_ends(consumer: Consumer, places: list[Place]) -> dict[Place, list[tuple[int, str]]]:
    found: dict[Place, list[tuple[int, str]]] = {place: [] for place in places}
    left = set(places)
    deadline = monotonic() + PATIENCE
    while left:
        if monotonic() > deadline:
            raise StuckError(f"{left} could not be read to the end within {PATIENCE:.0f} s")
        for message in consumer.consume(1_000, 0.2):
            place = Place(message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is None:
                found[place].append((message.offset() or 0, (message.value() or b"").decode()))
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(place)
    return found
