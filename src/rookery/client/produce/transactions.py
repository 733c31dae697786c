"""A transactional producer that writes whole batches sequentially and commits them together.

    writer = TransactionalWriter(client, "copy-7")
    await writer.start()          # fences earlier producers with the id, aborts their transactions
    await writer.begin([place])
    batches = await writer.write(place, rows)
    await writer.commit()

It is for bulk writes: the caller has the rows as Arrow data and waits for each batch. Without a
transactional id it is only idempotent: no row is written twice, but rows are visible immediately.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import pyarrow as pa

from rookery.client.client import Client
from rookery.client.connect.connections import Link
from rookery.client.connect.metadata import PartitionLeader
from rookery.client.connect.router import TRANSACTION
from rookery.errors import ApiError, ConfigError, ErrorCode
from rookery.model.offset import CommittedOffset
from rookery.model.partition import TopicPartition
from rookery.records.batches import HEADER_SIZE, parse, stamp_into
from rookery.records.columns import encode
from rookery.records.compression import NONE, Codec
from rookery.records.writing import WriteSettings
from rookery.wire.messages.add_offsets_to_txn import ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest
from rookery.wire.messages.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from rookery.wire.messages.end_txn import END_TXN, EndTxnRequest
from rookery.wire.messages.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from rookery.wire.messages.txn_offset_commit import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

# Up to these versions, groups and partitions are added by a request, and epochs stay as they are.
_ADD_VERSION: Final = 3
_OFFSETS_VERSION: Final = 4
_OFFSETS_OF_MEMBERS: Final = 3
_END_VERSION: Final = 4
_PRODUCE_VERSION: Final = 11
_PRODUCE_LOWEST: Final = 7
_SEQUENCES: Final = 1 << 31
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
# Before compression; a broker closes the connection on a request of more than 100 MiB.
_MAX_RECORD_BYTES: Final = 64 * 1024 * 1024

_Ask = Callable[[Link, int], Awaitable[None]]


class StoredBatch(NamedTuple):
    """A stored batch."""

    base_offset: int
    records: int


class TooLarge(ApiError):  # noqa: N818 (as its base)
    """A single record exceeds the topic's maximum size."""

    def __init__(self, row: int, text: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, text)
        self.row = row


class TransactionalWriter:
    """Writes batches under one transactional id, one transaction after the other."""

    def __init__(
        self,
        client: Client,
        transactional_id: str | None,
        *,
        timeout_ms: int = 60_000,
        codec: Codec = NONE,
        max_batch_bytes: int = 1_000_000,
    ) -> None:
        """Create a writer that has not started.

        Args:
            client: a client of the target cluster.
            transactional_id: stable across restarts of this writer; None: no transactions.
            timeout_ms: the coordinator aborts transactions that stay open for longer.
            codec: compresses batches.
            max_batch_bytes: the size of a batch; a larger record gets its own batch. If a topic's
                limit is lower, batches become smaller.
        """
        self._router = client.router
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._codec = codec
        self._max_batch_bytes = max_batch_bytes
        self._producer_id = self._epoch = -1
        self._sequences: dict[TopicPartition, int] = {}
        self._limits: dict[TopicPartition, int] = {}
        self._is_open = False

    async def start(self) -> None:
        """Get a producer id, which fences every earlier producer with our transactional id.

        Raises:
            ApiError: the cluster rejects the request.
            Unavailable: the cluster cannot be reached.
        """
        request = InitProducerIdRequest(
            transactional_id=self._id, transaction_timeout_ms=self._timeout_ms
        )

        async def ask(link: Link, timeout_ms: int) -> tuple[int, int]:
            version = link.versions.choose(INIT_PRODUCER_ID, highest=_END_VERSION)
            answer = await link.call(INIT_PRODUCER_ID, version, request, timeout_ms)
            _check(answer.error_code, f"broker {link.name} gave no producer id")
            return answer.producer_id, answer.producer_epoch

        deadline = self._router.retrier.deadline()
        if self._id is None:
            found = await self._router.ask_any("get a producer id", ask, deadline)
        else:
            found = await self._router.ask_coordinator(
                "get a producer id", self._id, ask, deadline, TRANSACTION
            )
        self._producer_id, self._epoch = found
        self._sequences.clear()
        self._is_open = False

    async def begin(self, places: Iterable[TopicPartition]) -> None:
        """Begin a transaction that writes to the given partitions.

        Raises:
            ApiError: another writer has taken over our id, or access is denied.
            Unavailable: the cluster cannot be reached.
        """
        if self._id is None:
            return
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=_by_topic(places),
        )

        async def ask(link: Link, timeout_ms: int) -> None:
            version = link.versions.choose(ADD_PARTITIONS_TO_TXN, highest=_ADD_VERSION)
            answer = await link.call(ADD_PARTITIONS_TO_TXN, version, request, timeout_ms)
            for topic in answer.results_by_topic_v3_and_below:
                for row in topic.results_by_partition:
                    what = f"{topic.name}-{row.partition_index} is not in the transaction"
                    _check(row.partition_error_code, what)

        self._is_open = True
        await self._ask_coordinator("begin a transaction", ask)

    async def write(
        self, place: TopicPartition, rows: pa.RecordBatch | pa.Table
    ) -> list[StoredBatch]:
        """Write rows to a partition; return the location of each batch.

        Raises:
            TooLarge: one row, given by its number, is too large; abort the transaction.
            ApiError: rows are rejected; likewise.
            Unavailable: it is not known whether all rows are stored; likewise.
        """
        written: list[StoredBatch] = []
        done = 0
        while done < rows.num_rows:
            for batch in _encoded(rows, done, self._writing(place)):
                stored = await self._store(place, batch, done)
                if stored is None:
                    break
                written.append(stored)
                done += stored.records
        return written

    async def _store(self, place: TopicPartition, batch: bytearray, row: int) -> StoredBatch | None:
        """Store a batch that starts at a row; None if the next batches must be smaller."""
        stamp_into(batch, 0, -1)  # the broker assigns the offset
        records = parse(batch).record_count
        try:
            offset = await self._send(place, bytes(batch))
        except ApiError as error:
            if error.code not in _TOO_LARGE:
                raise
            if records == 1:
                raise TooLarge(row, f"{error.text} (a batch of {len(batch)} bytes)") from error
            self._limits[place] = max(self._limit(place) // 2, HEADER_SIZE + 1)
            return None
        self._sequences[place] = (self._sequences.get(place, 0) + records) % _SEQUENCES
        return StoredBatch(offset, records)

    def _limit(self, place: TopicPartition) -> int:
        return self._limits.get(place, self._max_batch_bytes)

    def _writing(self, place: TopicPartition) -> WriteSettings:
        return WriteSettings(
            codec=self._codec,
            max_batch_bytes=self._limit(place),
            max_record_bytes=_MAX_RECORD_BYTES,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequences.get(place, 0),
            transactional=self._id is not None,
        )

    async def send_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset | int],
        member: tuple[str, int] | None = None,
    ) -> None:
        """Commit a group's offsets atomically with the current transaction.

        Args:
            group: the group's name.
            offsets: the next offset to read in each partition.
            member: the id and epoch of the group's member; None: the group has no members.

        Raises:
            ApiError: the offsets are rejected; abort the transaction.
            Unavailable: it is not known whether the offsets were accepted; likewise.
        """
        if self._id is None:
            raise ConfigError("transactional_id: offsets can be sent in a transaction only")
        self._is_open = True
        joining = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            group_id=group,
        )

        async def join(link: Link, timeout_ms: int) -> None:
            version = link.versions.choose(ADD_OFFSETS_TO_TXN)
            answer = await link.call(ADD_OFFSETS_TO_TXN, version, joining, timeout_ms)
            _check(answer.error_code, f"group {group!r} is not in the transaction")

        await self._ask_coordinator("add offsets to a transaction", join)
        request = self._offsets_request(group, offsets, member)

        async def ask(link: Link, timeout_ms: int) -> None:
            lowest = 0 if member is None else _OFFSETS_OF_MEMBERS
            version = link.versions.choose(
                TXN_OFFSET_COMMIT, lowest=lowest, highest=_OFFSETS_VERSION
            )
            answer = await link.call(TXN_OFFSET_COMMIT, version, request, timeout_ms)
            for topic in answer.topics:
                for row in topic.partitions:
                    what = f"offset of {topic.name}-{row.partition_index} for group {group!r}"
                    _check(row.error_code, what)

        deadline = self._router.retrier.deadline()
        what = f"send offsets of group {group!r}"
        await self._router.ask_coordinator(what, group, ask, deadline)

    def _offsets_request(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset | int],
        member: tuple[str, int] | None,
    ) -> TxnOffsetCommitRequest:
        member_id, epoch = member or ("", -1)
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for place, value in sorted(offsets.items()):
            one = value if isinstance(value, CommittedOffset) else CommittedOffset(value)
            topics.setdefault(place.topic, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=place.partition,
                    committed_offset=one.offset,
                    committed_leader_epoch=one.leader_epoch,
                    committed_metadata=one.metadata,
                )
            )
        return TxnOffsetCommitRequest(
            transactional_id=self._id or "",
            group_id=group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            generation_id=epoch,
            member_id=member_id,
            topics=[
                TxnOffsetCommitRequestTopic(name=name, partitions=rows)
                for name, rows in topics.items()
            ],
        )

    async def commit(self) -> None:
        """Commit everything that was written since `begin`.

        Raises:
            ApiError: another writer has taken over our id, or the transaction timed out; nothing is
                committed.
            Unavailable: it is not known whether the transaction is committed.
        """
        await self._end(is_committed=True)

    async def abort(self) -> None:
        """Abort the transaction."""
        if self._is_open:
            await self._end(is_committed=False)

    async def _end(self, *, is_committed: bool) -> None:
        if self._id is None:
            return
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=is_committed,
        )

        async def ask(link: Link, timeout_ms: int) -> None:
            version = link.versions.choose(END_TXN, highest=_END_VERSION)
            answer = await link.call(END_TXN, version, request, timeout_ms)
            _check(answer.error_code, "the transaction cannot be ended")

        await self._ask_coordinator("end a transaction", ask)
        self._is_open = False

    async def _ask_coordinator(self, what: str, ask: _Ask) -> None:
        deadline = self._router.retrier.deadline()
        await self._router.ask_coordinator(what, self._id or "", ask, deadline, TRANSACTION)

    async def _send(self, place: TopicPartition, batch: bytes) -> int:
        """Send a batch until it is stored exactly once; return its offset."""

        async def ask(
            link: Link, located: list[PartitionLeader], timeout_ms: int
        ) -> Mapping[TopicPartition, int | ApiError]:
            del located  # there is only one partition
            version = link.versions.choose(
                PRODUCE, lowest=_PRODUCE_LOWEST, highest=_PRODUCE_VERSION
            )
            data = PartitionProduceData(index=place.partition, records=batch)
            request = ProduceRequest(
                transactional_id=self._id,
                acks=-1,
                timeout_ms=timeout_ms,
                topic_data=[TopicProduceData(name=place.topic, partition_data=[data])],
            )
            answer = await link.call(PRODUCE, version, request, timeout_ms)
            row = answer.responses[0].partition_responses[0]
            if row.error_code is ErrorCode.NONE:
                return {place: row.base_offset}
            text = f"{place.text}: {row.error_message or row.error_code.sentence}"
            return {place: ApiError(row.error_code, text)}

        deadline = self._router.retrier.deadline()
        found = await self._router.ask_leaders(f"write to {place.text}", [place], ask, deadline)
        return found[place]


def _encoded(
    rows: pa.RecordBatch | pa.Table, row: int, writing: WriteSettings
) -> Iterator[bytearray]:
    """Yield batches of the rows from a given row on."""
    try:
        for batch in encode(rows.slice(row), writing):
            yield batch
            row += parse(batch).record_count
    except ApiError as error:
        if error.code not in _TOO_LARGE:
            raise
        text = f"a record has more than the {writing.max_record_bytes} bytes that are sent at once"
        raise TooLarge(row, text) from error


def _by_topic(places: Iterable[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    found: dict[str, list[int]] = {}
    for place in places:
        found.setdefault(place.topic, []).append(place.partition)
    return [
        AddPartitionsToTxnTopic(name=name, partitions=sorted(set(many)))
        for name, many in found.items()
    ]


def _check(code: ErrorCode, what: str) -> None:
    if code is not ErrorCode.NONE:
        raise ApiError(code, f"{what}: {code.sentence}")
