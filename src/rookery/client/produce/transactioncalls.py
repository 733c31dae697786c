"""The calls of a transactional producer to its coordinators."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple

from rookery.client.connect.connections import Link
from rookery.client.connect.router import TRANSACTION, Router
from rookery.errors import ApiError, ErrorCode
from rookery.model.offset import CommittedOffset
from rookery.model.partition import TopicPartition
from rookery.wire.messages.add_offsets_to_txn import ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest
from rookery.wire.messages.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from rookery.wire.messages.end_txn import END_TXN, EndTxnRequest
from rookery.wire.messages.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
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

_Ask = Callable[[Link, int], Awaitable[None]]


class ProducerIdentity(NamedTuple):
    """The ids under which a producer writes."""

    transactional_id: str | None
    """None: the producer is only idempotent."""
    producer_id: int = -1
    epoch: int = -1


class TransactionOffsets(NamedTuple):
    """Offsets of a group that are committed with a transaction."""

    group: str
    offsets: Mapping[TopicPartition, CommittedOffset | int]
    """The next offset to read in each partition."""
    member: tuple[str, int] | None = None
    """The id and epoch of the group's member; None: the group has no members."""


class TransactionCalls:
    """Sends the requests of one transaction after the other, each until it is answered.

    All methods raise `ApiError` if the coordinator rejects the request, and `Unavailable` if it is
    not known whether the request was executed.
    """

    def __init__(self, router: Router) -> None:
        self._router = router

    async def initialise(self, transactional_id: str | None, timeout_ms: int) -> ProducerIdentity:
        """Get a producer id, which fences every earlier producer with the transactional id."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )

        async def ask(link: Link, timeout_ms: int) -> ProducerIdentity:
            version = link.versions.choose(INIT_PRODUCER_ID, highest=_END_VERSION)
            answer = await link.call(INIT_PRODUCER_ID, version, request, timeout_ms)
            _check(answer.error_code, f"broker {link.name} gave no producer id")
            return ProducerIdentity(transactional_id, answer.producer_id, answer.producer_epoch)

        deadline = self._router.retrier.deadline()
        if transactional_id is None:
            return await self._router.ask_any("get a producer id", ask, deadline)
        return await self._router.ask_coordinator(
            "get a producer id", transactional_id, ask, deadline, TRANSACTION
        )

    async def add_partitions(
        self, producer: ProducerIdentity, places: Iterable[TopicPartition]
    ) -> None:
        """Add partitions to the producer's transaction, which begins with the first of them."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.transactional_id or "",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=_by_topic(places),
        )

        async def ask(link: Link, timeout_ms: int) -> None:
            version = link.versions.choose(ADD_PARTITIONS_TO_TXN, highest=_ADD_VERSION)
            answer = await link.call(ADD_PARTITIONS_TO_TXN, version, request, timeout_ms)
            for topic in answer.results_by_topic_v3_and_below:
                for row in topic.results_by_partition:
                    what = f"{topic.name}-{row.partition_index} is not in the transaction"
                    _check(row.partition_error_code, what)

        await self._ask_coordinator("begin a transaction", producer, ask)

    async def send_offsets(self, producer: ProducerIdentity, sent: TransactionOffsets) -> None:
        """Add a group to the producer's transaction, and its offsets to be committed."""
        joining = AddOffsetsToTxnRequest(
            transactional_id=producer.transactional_id or "",
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=sent.group,
        )

        async def join(link: Link, timeout_ms: int) -> None:
            version = link.versions.choose(ADD_OFFSETS_TO_TXN)
            answer = await link.call(ADD_OFFSETS_TO_TXN, version, joining, timeout_ms)
            _check(answer.error_code, f"group {sent.group!r} is not in the transaction")

        await self._ask_coordinator("add offsets to a transaction", producer, join)
        request = _offsets_request(producer, sent)

        async def ask(link: Link, timeout_ms: int) -> None:
            lowest = 0 if sent.member is None else _OFFSETS_OF_MEMBERS
            version = link.versions.choose(
                TXN_OFFSET_COMMIT, lowest=lowest, highest=_OFFSETS_VERSION
            )
            answer = await link.call(TXN_OFFSET_COMMIT, version, request, timeout_ms)
            for topic in answer.topics:
                for row in topic.partitions:
                    what = f"offset of {topic.name}-{row.partition_index} for group {sent.group!r}"
                    _check(row.error_code, what)

        deadline = self._router.retrier.deadline()
        what = f"send offsets of group {sent.group!r}"
        await self._router.ask_coordinator(what, sent.group, ask, deadline)

    async def end(self, producer: ProducerIdentity, *, is_committed: bool) -> None:
        """Commit or abort the producer's transaction."""
        request = EndTxnRequest(
            transactional_id=producer.transactional_id or "",
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=is_committed,
        )

        async def ask(link: Link, timeout_ms: int) -> None:
            version = link.versions.choose(END_TXN, highest=_END_VERSION)
            answer = await link.call(END_TXN, version, request, timeout_ms)
            _check(answer.error_code, "the transaction cannot be ended")

        await self._ask_coordinator("end a transaction", producer, ask)

    async def _ask_coordinator(self, what: str, producer: ProducerIdentity, ask: _Ask) -> None:
        deadline = self._router.retrier.deadline()
        key = producer.transactional_id or ""
        await self._router.ask_coordinator(what, key, ask, deadline, TRANSACTION)


def _by_topic(places: Iterable[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    topics: dict[str, list[int]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(place.partition)
    return [
        AddPartitionsToTxnTopic(name=name, partitions=sorted(set(many)))
        for name, many in topics.items()
    ]


def _offsets_request(
    producer: ProducerIdentity, sent: TransactionOffsets
) -> TxnOffsetCommitRequest:
    member_id, epoch = sent.member or ("", -1)
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for place, value in sorted(sent.offsets.items()):
        offset = value if isinstance(value, CommittedOffset) else CommittedOffset(value)
        topics.setdefault(place.topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=place.partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    return TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id or "",
        group_id=sent.group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id=epoch,
        member_id=member_id,
        topics=[
            TxnOffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()
        ],
    )


def _check(code: ErrorCode, what: str) -> None:
    if code is not ErrorCode.NONE:
        raise ApiError(code, f"{what}: {code.sentence}")
