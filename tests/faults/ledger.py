"""What clients were promised about records, and what readers have seen of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rookery.records.recordcodec import Record

_Key = tuple[str, int, bytes]


class RecordPlace(NamedTuple):
    """Where a record is."""

    topic: str
    partition: int
    offset: int


class SentBatch(NamedTuple):
    """Records on their way to a partition; their offsets are not known yet."""

    topic: str
    partition: int
    records: list[Record]

    def at(self, base_offset: int) -> Iterable[tuple[RecordPlace, Record]]:
        """Return the records with their places."""
        for offset, record in enumerate(self.records, base_offset):
            place = RecordPlace(self.topic, self.partition, offset)
            yield place, record._replace(offset=offset)


class Ledger:
    """Compares everything that is read with everything that is known about it.

    Each key has one writer, so the last record of a key is known.
    """

    def __init__(self) -> None:
        self.reads = 0
        self._read: dict[RecordPlace, Record] = {}
        self._stored: dict[RecordPlace, Record] = {}
        self._hidden: set[RecordPlace] = set()
        self._last: dict[_Key, Record] = {}
        self._in_doubt: set[_Key] = set()

    # Writers.

    def begin(self, batch: SentBatch) -> None:
        """Note that a batch is about to be sent: the last records of its keys are in doubt."""
        self._in_doubt.update(_keys(batch))

    def hide(self, batch: SentBatch, base_offset: int) -> None:
        """Note a batch of an open transaction, which no client may read."""
        for place, _ in batch.at(base_offset):
            self._hidden.add(place)
            assert place not in self._read, f"{place} was read before its transaction ended"

    def reveal(self, batch: SentBatch, base_offset: int) -> None:
        """Note that the transaction of a batch is about to be committed."""
        self._hidden.difference_update(place for place, _ in batch.at(base_offset))

    def note_stored(self, batch: SentBatch, base_offset: int) -> None:
        """Note a batch that is acknowledged, and committed if it was in a transaction."""
        for place, record in batch.at(base_offset):
            self._stored[place] = record
            assert self._read.get(place, record) == record, f"{place} is not what was sent"
            if record.key is not None:
                self._last[place.topic, place.partition, record.key] = record
        self._in_doubt.difference_update(_keys(batch))

    def note_aborted(self, batch: SentBatch) -> None:
        """Note that nothing commits a batch any more."""
        self._in_doubt.difference_update(_keys(batch))

    def forget(self, batch: SentBatch) -> None:
        """Note that the outcome of a batch is unknown."""
        for key in _keys(batch):
            self._last.pop(key, None)
        self._in_doubt.difference_update(_keys(batch))

    # Readers.

    def note_read(self, topic: str, partition: int, records: Iterable[Record]) -> None:
        """Compare records with everything that is known about their places."""
        self.reads += 1
        for record in records:
            place = RecordPlace(topic, partition, record.offset)
            assert place not in self._hidden, f"{place} was read, but is not committed"
            assert self._stored.get(place, record) == record, f"{place} is not what was sent"
            assert self._read.setdefault(place, record) == record, f"{place} has changed"

    def last_records(self, topic: str, partition: int) -> dict[bytes, Record]:
        """Return the last record of each key for which it is certain."""
        return {
            key[2]: record
            for key, record in self._last.items()
            if key[:2] == (topic, partition) and key not in self._in_doubt
        }

    def check_last(
        self, topic: str, partition: int, expected: Mapping[bytes, Record], found: list[Record]
    ) -> None:
        """Check that a reader of a whole partition found the last records of keys.

        Args:
            topic: the compacted topic.
            partition: the partition that was read.
            expected: `last_records` from before the reader began; records that are not the last
                of their key any more are left out, since compaction may have removed them.
            found: the records that the reader found.
        """
        newest = {record.key: record for record in found}
        now = self.last_records(topic, partition)
        for key, record in expected.items():
            # A tombstone is removed in the end, after all that it deletes.
            absent = record if record.value is None else None
            if now.get(key) == record:
                assert newest.get(key, absent) == record, f"{key!r} has another last record"

    def check_complete(self, topic: str, partition: int, first: int, found: list[Record]) -> None:
        """Check that a reader of all records from an offset on has found each that is stored."""
        offsets = {record.offset for record in found}
        missing = [
            place
            for place in self._stored
            if place[:2] == (topic, partition) and place.offset >= first
            if place.offset not in offsets
        ]
        assert not missing, f"{len(missing)} records are missing: {missing[:3]}"
        values = [record.value for record in found]
        assert len(set(values)) == len(values), "a record is stored twice"


def _keys(batch: SentBatch) -> list[_Key]:
    return [
        (batch.topic, batch.partition, record.key)
        for record in batch.records
        if record.key is not None
    ]
