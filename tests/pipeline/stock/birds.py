"""A topic of birds, and the rows that tables must hold after a pipeline and others changed them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from tests.pipeline.logs import Log, Message
from tests.pipeline.stock.shell import plain
from tests.pipeline.stock.sqlengine import Row

TOPIC: Final = "birds"
SCHEMA: Final = "id long, name string, size double, seen timestamp, tags array<string>"
# Not long ago, so that no retention applies.
_START: Final = datetime.now(UTC).replace(microsecond=0)


class Bird(NamedTuple):
    """A record of the topic."""

    id: int
    title: str | None
    partition: int
    offset: int
    at: datetime

    @property
    def key(self) -> str:
        return f"k{self.id}"

    @property
    def value(self) -> bytes | None:
        if self.title is None:
            return None
        return json.dumps(self._columns() | {"seen": self._seen().isoformat()}).encode()

    @property
    def message(self) -> Message:
        milliseconds = round(self.at.timestamp() * 1000)
        headers = (("title", (self.title or "").encode()),)
        return Message(self.value, self.key.encode(), self.partition, milliseconds, headers)

    def bronze(self) -> Row:
        """Return its row in bronze."""
        fields = {"key": self.key.encode(), "value": self.value, "timestampType": 0}
        [(name, value)] = self.message.headers
        headers = [{"key": name, "value": value}]
        row: Row = plain(fields | self._coordinates() | {"headers": headers})
        return row

    def silver(self) -> Row:
        """Return its row in silver."""
        own = {f"rookery_{name}": value for name, value in self._coordinates().items()}
        fields = self._columns() | {"seen": self._seen(), "rookery_key": self.key}
        row: Row = plain(fields | own)
        return row

    def _columns(self) -> Row:
        tags = [f"tag {number}" for number in range(self.id % 3)]
        return {
            "id": self.id,
            "name": f"{self.title} {self.id}",
            "size": self.id / 4,
            "tags": tags,
        }

    def _coordinates(self) -> Row:
        return {
            "topic": TOPIC,
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": self.at,
        }

    def _seen(self) -> datetime:
        return datetime(2026, 11, 18, tzinfo=UTC) + timedelta(minutes=self.id)


class BirdTopic:
    """The topic; records of one key are in one partition."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._offsets: Counter[int] = Counter()

    def write(self, ids: Iterable[int], title: str | None) -> list[Bird]:
        """Write a record for each id; without a title they have no value, and delete their key."""
        birds = [self._next(number, title) for number in ids]
        self._log.write(TOPIC, [bird.message for bird in birds])
        return birds

    def _next(self, number: int, title: str | None) -> Bird:
        at = _START + timedelta(milliseconds=self._offsets.total())
        partition = number % 2
        offset = self._offsets[partition]
        self._offsets[partition] += 1
        return Bird(number, title, partition, offset, at)


class ExpectedTable:
    """The rows that a table must have."""

    def __init__(self, layer: str, *, is_upsert: bool) -> None:
        self._is_bronze = layer == "bronze"
        self._is_upsert = is_upsert
        self.rows: list[Row] = []

    def add(self, birds: Sequence[Bird]) -> None:
        """Add what a pipeline makes of records."""
        for bird in birds:
            if self._is_bronze:
                self.rows.append(bird.bronze())
                continue
            if self._is_upsert:
                self.rows = [row for row in self.rows if row["rookery_key"] != bird.key]
            if bird.title is not None:
                self.rows.append(bird.silver())
