"""A transactional producer that speaks to the cluster log, without a broker."""

from __future__ import annotations

from typing import Any, Self

from rookery.cluster.events.groupevents import GroupClaimed, OffsetCommitted
from rookery.cluster.events.txnevents import (
    OffsetsAddedToTransaction,
    PartitionsAddedToTransaction,
    TransactionEnded,
    TransactionInitialised,
    TransactionOffsetsCommitted,
    TransactionPlace,
)
from rookery.cluster.state.txns import TransactionOwner
from rookery.errors import ErrorCode
from rookery.log.write.flushtarget import CheckedBatch
from rookery.records import batches
from rookery.records.recordcodec import BatchSettings, Record, build
from tests.log.site import TOPIC, Writer


def batch_of(
    key: bytes, value: bytes, settings: BatchSettings | None = None, partition: int = 0
) -> CheckedBatch:
    """Make a batch of one record."""
    data = memoryview(bytearray(build([Record(key, value)], settings or BatchSettings())))
    return CheckedBatch(TOPIC, partition, data, batches.parse(data))


class Transactor:
    """A transactional producer of the older protocol."""

    def __init__(self, writer: Writer, name: str) -> None:
        self.writer = writer
        self.name = name
        self.own: TransactionOwner
        self._sequences: dict[int, int] = {}

    async def init(self) -> Self:
        """Take the transactional id."""
        event = TransactionInitialised(transactional_id=self.name, timeout_ms=60_000)
        [outcome] = await self.writer.replica.propose([event])
        self.own = outcome.value
        self._sequences.clear()
        return self

    async def write(
        self,
        key: bytes,
        value: bytes,
        *,
        partition: int = 0,
        to_object: bool = True,
        by: Writer | None = None,
    ) -> int:
        """Write one record, perhaps through another writer; return its offset."""
        place = TransactionPlace(topic_id=TOPIC, partition=partition)
        await self.writer.replica.propose(
            [PartitionsAddedToTransaction(**self._named(), places=[place])]
        )
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + 1
        settings = BatchSettings(
            producer_id=self.own.producer_id,
            producer_epoch=self.own.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        made = batch_of(key, value, settings, partition)
        writer = by or self.writer
        [appended] = await (writer.write(made) if to_object else writer.send(made))
        assert appended.error is ErrorCode.NONE
        return appended.base_offset

    async def read_up_to(self, group_id: str, offset: int, partition: int = 0) -> None:
        """Make a group's offset a part of the transaction."""
        [claimed] = await self.writer.replica.propose([GroupClaimed(group_id=group_id)])
        await self.writer.replica.propose(
            [OffsetsAddedToTransaction(**self._named(), group_id=group_id)]
        )
        read = OffsetCommitted(
            topic_id=TOPIC, partition=partition, offset=offset, leader_epoch=3, metadata="m"
        )
        event = TransactionOffsetsCommitted(
            **self._named(), group_id=group_id, group_epoch=claimed.value, offsets=[read]
        )
        [outcome] = await self.writer.replica.propose([event])
        assert outcome.error is ErrorCode.NONE

    async def end(self, *, commit: bool) -> None:
        """Commit or abort."""
        event = TransactionEnded(**self._named(), is_commit=commit)
        [outcome] = await self.writer.replica.propose([event])
        assert outcome.error is ErrorCode.NONE

    def _named(self) -> dict[str, Any]:
        return {
            "transactional_id": self.name,
            "producer_id": self.own.producer_id,
            "producer_epoch": self.own.epoch,
        }
