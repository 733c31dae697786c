"""Producers, open and aborted transactions, learnt from batches."""

from __future__ import annotations

from rookery.formats.logfile.indexes import LoggedAbort
from rookery.formats.logfile.producers import NO_OFFSET, ProducerEntry
from rookery.formats.logfile.replay import PartitionReplay, SequencedBatch
from rookery.model.control import ControlRecordType
from rookery.records.batches import parse
from rookery.records.recordcodec import BatchSettings, Record, build, build_marker


class World:
    """A log that grows."""

    def __init__(self, *known: ProducerEntry, offset: int = 0) -> None:
        self.replay = PartitionReplay(known)
        self.offset = offset

    def write(
        self, producer_id: int, sequence: int, count: int = 1, *, epoch: int = 0, txn: bool = True
    ) -> None:
        settings = BatchSettings(
            base_offset=self.offset,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=txn,
        )
        self._apply(build([Record(None, b"x", (), 50)] * count, settings))

    def end(self, producer_id: int, *, commit: bool, epoch: int = 0) -> None:
        settings = BatchSettings(
            base_offset=self.offset, producer_id=producer_id, producer_epoch=epoch
        )
        outcome = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
        self._apply(build_marker(outcome, 4, settings, 60))

    def _apply(self, data: bytes) -> None:
        header = parse(data)
        self.replay.apply(data, header)
        self.offset = header.last_offset + 1


def test_producer_state_has_its_last_batches() -> None:
    world = World()
    for number in range(7):
        world.write(1, number * 2, 2, txn=False)

    assert world.replay.producers[1] == ProducerEntry(1, 0, 13, 13, 1, 50)
    assert list(world.replay.batches[1]) == [
        SequencedBatch(n * 2, n * 2 + 1, n * 2, n * 2 + 1) for n in range(2, 7)
    ]
    assert world.replay.first_unstable() is None


def test_new_epoch_removes_the_batches_of_the_old() -> None:
    world = World()
    world.write(1, 0, txn=False)
    world.write(1, 0, epoch=1, txn=False)

    assert list(world.replay.batches[1]) == [SequencedBatch(0, 0, 1, 1)]
    assert world.replay.producers[1].epoch == 1


def test_sequences_wrap_around() -> None:
    world = World()
    world.write(1, 2**31 - 1, 3, txn=False)

    assert world.replay.producers[1].last_sequence == 1


def test_transactions_start_end_and_overlap() -> None:
    world = World()
    world.write(1, 0)  # 0
    world.write(2, 0)  # 1
    world.end(2, commit=False)  # 2
    assert world.replay.open == {1: 0}
    assert world.replay.aborted == [LoggedAbort(2, 1, 2, 0)]

    world.write(2, 1)  # 3
    world.end(1, commit=False)  # 4
    assert world.replay.aborted[1] == LoggedAbort(1, 0, 4, 3)
    assert world.replay.first_unstable() == 3

    world.end(2, commit=True)  # 5
    assert world.replay.first_unstable() is None
    assert world.replay.producers[2] == ProducerEntry(2, 0, 1, 3, 0, 60, 4, NO_OFFSET)


def test_marker_in_the_next_epoch_restarts_sequences() -> None:
    """Kafka 4 raises the epoch by the marker itself (KIP-890)."""
    world = World()
    world.write(1, 0, 3)
    world.end(1, commit=True, epoch=1)

    assert world.replay.producers[1] == ProducerEntry(1, 1, -1, NO_OFFSET, 0, 60, 4, NO_OFFSET)
    assert 1 not in world.replay.batches


def test_replay_continues_from_a_snapshot() -> None:
    known = ProducerEntry(1, 3, 9, 19, 4, 40, 2, 15)
    world = World(known, offset=20)
    assert world.replay.open == {1: 15}
    assert list(world.replay.batches[1]) == [SequencedBatch(5, 9, 15, 19)]

    world.end(1, commit=False, epoch=3)

    assert world.replay.aborted == [LoggedAbort(1, 15, 20, 21)]
    assert world.replay.producers[1] == known._replace(
        timestamp=60, coordinator_epoch=4, first_offset=NO_OFFSET
    )
