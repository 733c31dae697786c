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

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import pyarrow as pa

from rookery.client.client import Client
from rookery.client.connect.connections import Link
from rookery.client.connect.metadata import PartitionLeader
from rookery.client.produce.transactioncalls import (
    ProducerIdentity,
    TransactionCalls,
    TransactionOffsets,
)
from rookery.errors import ApiError, ConfigError, ErrorCode
from rookery.model.offset import CommittedOffset
from rookery.model.partition import TopicPartition
from rookery.records.batches import HEADER_SIZE, parse, stamp_into
from rookery.records.columns import encode
from rookery.records.compression import NONE, Codec
from rookery.records.writing import WriteSettings
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

_PRODUCE_VERSION: Final = 11
_PRODUCE_LOWEST: Final = 7
_SEQUENCES: Final = 1 << 31
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
# Before compression; a broker closes the connection on a request of more than 100 MiB.
_MAX_RECORD_BYTES: Final = 64 * 1024 * 1024


class StoredBatch(NamedTuple):
    """The position of a batch that the broker has acknowledged."""

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
        self._calls = TransactionCalls(client.router)
        self._producer = ProducerIdentity(transactional_id)
        self._timeout_ms = timeout_ms
        self._codec = codec
        self._max_batch_bytes = max_batch_bytes
        self._sequences: dict[TopicPartition, int] = {}
        self._limits: dict[TopicPartition, int] = {}
        self._is_open = False

    async def start(self) -> None:
        """Get a producer id, which fences every earlier producer with our transactional id.

        Raises:
            ApiError: the cluster rejects the request.
            Unavailable: the cluster cannot be reached.
        """
        self._producer = await self._calls.initialise(
            self._producer.transactional_id, self._timeout_ms
        )
        self._sequences.clear()
        self._is_open = False

    async def begin(self, places: Iterable[TopicPartition]) -> None:
        """Begin a transaction that writes to the given partitions.

        Raises:
            ApiError: another writer has taken over our id, or access is denied.
            Unavailable: the cluster cannot be reached.
        """
        if self._producer.transactional_id is None:
            return
        self._is_open = True
        await self._calls.add_partitions(self._producer, places)

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
            for batch in _encode(rows, done, self._make_settings(place)):
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

    def _make_settings(self, place: TopicPartition) -> WriteSettings:
        return WriteSettings(
            codec=self._codec,
            max_batch_bytes=self._limit(place),
            max_record_bytes=_MAX_RECORD_BYTES,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.epoch,
            base_sequence=self._sequences.get(place, 0),
            transactional=self._producer.transactional_id is not None,
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
        if self._producer.transactional_id is None:
            raise ConfigError("transactional_id: offsets can be sent in a transaction only")
        self._is_open = True
        await self._calls.send_offsets(self._producer, TransactionOffsets(group, offsets, member))

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
        if self._producer.transactional_id is None:
            return
        await self._calls.end(self._producer, is_committed=is_committed)
        self._is_open = False

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
                transactional_id=self._producer.transactional_id,
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
        answers = await self._router.ask_leaders(f"write to {place.text}", [place], ask, deadline)
        return answers[place]


def _encode(
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
