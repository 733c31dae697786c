"""A transactional producer made by hand, and a reader of committed records as clients have it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rookery.clock import SystemClock
from rookery.errors import ErrorCode
from rookery.model.control import ControlRecordType
from rookery.records import batches, recordcodec
from rookery.records.batches import BatchHeader
from rookery.records.recordcodec import BatchSettings, Record, build
from rookery.wire.messages.add_offsets_to_txn import ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest
from rookery.wire.messages.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from rookery.wire.messages.end_txn import END_TXN, EndTxnRequest, EndTxnResponse
from rookery.wire.messages.fetch import PartitionData
from rookery.wire.messages.init_producer_id import (
    INIT_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from rookery.wire.messages.produce import PRODUCE, PartitionProduceResponse
from rookery.wire.messages.txn_offset_commit import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.raw import Raw, bytes_of, produce_request

COMMITTED = 1


class Transactor:
    """A producer that speaks the older protocol, or the newer one of KIP-890."""

    def __init__(self, client: Raw, name: str, *, is_newer: bool) -> None:
        self.client = client
        self.name = name
        self.is_newer = is_newer
        self.id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    async def init(self, **fields: Any) -> InitProducerIdResponse:
        """Become the producer of the id."""
        answer = await self.client.ask(
            INIT_PRODUCER_ID,
            4,
            InitProducerIdRequest(
                transactional_id=self.name,
                transaction_timeout_ms=fields.pop("timeout_ms", 60_000),
                **fields,
            ),
        )
        if answer.error_code is ErrorCode.NONE:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return answer

    async def add(self, topic: str, *partitions: int) -> list[ErrorCode]:
        """Add partitions, as the older protocol has it."""
        answer = await self.client.ask(
            ADD_PARTITIONS_TO_TXN,
            3,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))
                ],
            ),
        )
        [result] = answer.results_by_topic_v3_and_below
        return [part.partition_error_code for part in result.results_by_partition]

    async def send(self, topic: str, *values: bytes, partition: int = 0) -> ErrorCode:
        """Write a batch; by the older protocol its partition is added first."""
        if not self.is_newer:
            assert await self.add(topic, partition) == [ErrorCode.NONE]
        return await self.write(topic, *values, partition=partition)

    async def write(
        self, topic: str, *values: bytes, partition: int = 0, version: int | None = None
    ) -> ErrorCode:
        """Write a batch and nothing else."""
        stamp = SystemClock().now_ms()
        records = [Record(b"key", value, (), stamp) for value in values]
        answer = await self.produce(topic, records, partition=partition, version=version)
        return answer.error_code

    async def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        partition: int = 0,
        version: int | None = None,
    ) -> PartitionProduceResponse:
        """Write a batch of any records; return the whole answer."""
        sequence = self.sequences.get((topic, partition), 0)
        settings = BatchSettings(
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        request = produce_request(topic, {partition: build(records, settings)})
        request.transactional_id = self.name
        version = version or (12 if self.is_newer else 9)
        response = await self.client.ask(PRODUCE, version, request)
        [answer] = response.responses[0].partition_responses
        if answer.error_code is ErrorCode.NONE:
            self.sequences[topic, partition] = sequence + len(records)
        return answer

    async def add_offsets(self, group: str) -> ErrorCode:
        """Add a group, as the older protocol has it."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        return (await self.client.ask(ADD_OFFSETS_TO_TXN, 3, request)).error_code

    async def commit_offset(
        self, group: str, topic: str, offset: int, *, version: int | None = None, **who: Any
    ) -> ErrorCode:
        """Commit an offset of a group with the transaction."""
        part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[part])],
            **who,
        )
        version = version or (5 if self.is_newer else 3)
        answer = await self.client.ask(TXN_OFFSET_COMMIT, version, request)
        return answer.topics[0].partitions[0].error_code

    async def end(self, *, commit: bool, version: int | None = None) -> EndTxnResponse:
        """End the transaction."""
        answer = await self.client.ask(
            END_TXN,
            version or (5 if self.is_newer else 3),
            EndTxnRequest(
                transactional_id=self.name,
                producer_id=self.id,
                producer_epoch=self.epoch,
                committed=commit,
            ),
        )
        if answer.error_code is ErrorCode.NONE and self.is_newer:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return answer


class CommittedRecords(NamedTuple):
    """What a reader of committed records has of one answer."""

    records: list[Record]
    next_offset: int
    """Where to read on; the offset that was asked for if the answer is empty."""


async def committed(
    client: Raw, topic: str, offset: int = 0, *, partition: int = 0, **options: Any
) -> list[bytes]:
    """Read to the end as a client does that wants committed records only."""
    values: list[bytes] = []
    while True:
        answer = await client.fetch(
            topic, offset, partition=partition, isolation_level=COMMITTED, **options
        )
        read = committed_records(answer, offset)
        if read.next_offset == offset:
            return values
        offset = read.next_offset
        for record in read.records:
            assert record.value is not None
            values.append(record.value)


def committed_records(answer: PartitionData, offset: int) -> CommittedRecords:
    """Decode an answer as a client does that wants committed records only."""
    assert answer.error_code is ErrorCode.NONE
    data = bytes_of(answer)
    if not data:
        return CommittedRecords([], offset)
    waiting = sorted(
        (transaction.first_offset, transaction.producer_id)
        for transaction in answer.aborted_transactions or []
    )
    headers = batches.check_fetched(data)
    assert headers, "a batch must be whole"
    end = headers[-1].last_offset
    assert offset <= end < answer.last_stable_offset
    # Nothing may be named that does not concern what was sent.
    assert all(first <= end for first, _ in waiting)
    return CommittedRecords(list(_without_aborted(data, headers, offset, waiting)), end + 1)


def _without_aborted(
    data: bytes, headers: list[BatchHeader], offset: int, waiting: list[tuple[int, int]]
) -> Iterator[Record]:
    """Return the records of batches but for those of aborted transactions."""
    skipped: set[int] = set()
    for header in headers:
        while waiting and waiting[0][0] <= header.last_offset:
            skipped.add(waiting.pop(0)[1])
        if header.is_control:
            [marker] = recordcodec.read(data, header)
            if recordcodec.control(marker).type is ControlRecordType.ABORT:
                skipped.discard(header.producer_id)
        elif header.producer_id not in skipped or not header.is_transactional:
            for record in recordcodec.read(data, header):
                if record.offset >= offset:
                    yield record
