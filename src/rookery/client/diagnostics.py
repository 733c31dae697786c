"""Diagnostics for operators: disk use, transactional ids and the producers of a partition."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from rookery.client.connect.connections import Link
from rookery.client.connect.metadata import PartitionLeader
from rookery.client.connect.router import TRANSACTION, Router, by_topic
from rookery.errors import ApiError, ErrorCode
from rookery.model.address import Address
from rookery.model.partition import TopicPartition
from rookery.wire.messages.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from rookery.wire.messages.describe_producers import (
    DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    PartitionResponse,
    TopicRequest,
)
from rookery.wire.messages.describe_transactions import (
    DESCRIBE_TRANSACTIONS,
    DescribeTransactionsRequest,
)
from rookery.wire.messages.list_transactions import LIST_TRANSACTIONS, ListTransactionsRequest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory of one broker."""

    path: str
    error: ErrorCode
    """KAFKA_STORAGE_ERROR if the broker cannot use the directory."""
    total_bytes: int | None
    usable_bytes: int | None
    sizes: Mapping[TopicPartition, int]
    """The size of each replica in bytes; replicas that are being moved here are left out."""


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id as its coordinator lists it."""

    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id, its producer and its open transaction."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    """None if no transaction is open."""
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """An idempotent or transactional producer as known to a partition's leader."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    open_from: int | None
    """The first offset of its open transaction; None if it has none."""


class Diagnostics:
    """Queries brokers, coordinators and leaders for their state; changes nothing."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def log_dirs(
        self, timeout_ms: int | None = None
    ) -> dict[int, tuple[LogDirDescription, ...]]:
        """Return the log directories of every broker, by its id."""

        async def ask(link: Link, request_ms: int) -> tuple[LogDirDescription, ...]:
            version = link.versions.choose(DESCRIBE_LOG_DIRS)
            answer = await link.call(
                DESCRIBE_LOG_DIRS, version, DescribeLogDirsRequest(), request_ms
            )
            _check(answer.error_code, "describe log directories", link)
            return tuple(_log_dir(row) for row in answer.results)

        return await self._ask_brokers("describe log directories", ask, timeout_ms)

    async def list_transactions(self, timeout_ms: int | None = None) -> list[TransactionListing]:
        """List the transactional ids of all coordinators, sorted by id."""

        async def ask(link: Link, request_ms: int) -> list[TransactionListing]:
            version = link.versions.choose(LIST_TRANSACTIONS)
            request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
            answer = await link.call(LIST_TRANSACTIONS, version, request, request_ms)
            _check(answer.error_code, "list transactions", link)
            return [
                TransactionListing(row.transactional_id, row.producer_id, row.transaction_state)
                for row in answer.transaction_states
            ]

        answers = await self._ask_brokers("list transactions", ask, timeout_ms)
        # Two brokers may both list an id while its coordinator moves.
        by_id = {row.transactional_id: row for rows in answers.values() for row in rows}
        return [by_id[name] for name in sorted(by_id)]

    async def describe_transaction(
        self, transactional_id: str, timeout_ms: int | None = None
    ) -> TransactionDescription:
        """Describe a transactional id.

        Raises:
            ApiError: TRANSACTIONAL_ID_NOT_FOUND.
        """
        what = f"describe transactional id {transactional_id!r}"

        async def ask(link: Link, request_ms: int) -> TransactionDescription:
            version = link.versions.choose(DESCRIBE_TRANSACTIONS)
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            answer = await link.call(DESCRIBE_TRANSACTIONS, version, request, request_ms)
            row = answer.transaction_states[0]
            _check(row.error_code, what, link)
            return TransactionDescription(
                transactional_id=row.transactional_id,
                state=row.transaction_state,
                producer_id=row.producer_id,
                producer_epoch=row.producer_epoch,
                timeout_ms=row.transaction_timeout_ms,
                start_time_ms=_known(row.transaction_start_time_ms),
                partitions=tuple(
                    TopicPartition(topic.topic, number)
                    for topic in row.topics
                    for number in topic.partitions
                ),
            )

        deadline = self._router.retrier.deadline(timeout_ms)
        return await self._router.ask_coordinator(
            what, transactional_id, ask, deadline, TRANSACTION
        )

    async def describe_producers(
        self, places: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, tuple[ProducerDescription, ...]]:
        """Return the producers known to each partition's leader."""
        deadline = self._router.retrier.deadline(timeout_ms)

        async def ask(
            link: Link, group: list[PartitionLeader], request_ms: int
        ) -> Mapping[TopicPartition, tuple[ProducerDescription, ...] | ApiError]:
            version = link.versions.choose(DESCRIBE_PRODUCERS)
            request = DescribeProducersRequest(
                topics=[
                    TopicRequest(
                        name=topic, partition_indexes=[row.place.partition for row in rows]
                    )
                    for topic, _, rows in by_topic(group)
                ]
            )
            answer = await link.call(DESCRIBE_PRODUCERS, version, request, request_ms)
            return {
                TopicPartition(topic.name, row.partition_index): _producers(topic.name, row)
                for topic in answer.topics
                for row in topic.partitions
            }

        return await self._router.ask_leaders("describe producers", places, ask, deadline)

    async def _ask_brokers(
        self, what: str, ask: Callable[[Link, int], Awaitable[T]], timeout_ms: int | None
    ) -> dict[int, T]:
        """Query every broker of the cluster concurrently."""
        router = self._router
        deadline = router.retrier.deadline(timeout_ms)

        async def ask_one(address: Address) -> T:
            link = await router.connections.get(address)
            return await ask(link, router.request_ms(deadline))

        async def attempt() -> dict[int, T]:
            view = await router.metadata.refresh([], deadline)
            nodes = [view.nodes[number] for number in sorted(view.nodes)]
            answers = await asyncio.gather(*(ask_one(node.address) for node in nodes))
            return {node.id: answer for node, answer in zip(nodes, answers, strict=True)}

        return await router.retrier.run(what, deadline, attempt)


def _check(code: ErrorCode, what: str, link: Link) -> None:
    if code is not ErrorCode.NONE:
        raise ApiError(code, f"{what}, by broker {link.name}: {code.sentence}")


def _known(number: int) -> int | None:
    """Return a number, or None for Kafka's -1."""
    return None if number < 0 else number


def _log_dir(row: DescribeLogDirsResult) -> LogDirDescription:
    return LogDirDescription(
        path=row.log_dir,
        error=row.error_code,
        total_bytes=_known(row.total_bytes),
        usable_bytes=_known(row.usable_bytes),
        sizes={
            TopicPartition(topic.name, part.partition_index): part.partition_size
            for topic in row.topics
            for part in topic.partitions
            if not part.is_future_key
        },
    )


def _producers(topic: str, row: PartitionResponse) -> tuple[ProducerDescription, ...] | ApiError:
    if row.error_code is not ErrorCode.NONE:
        message = row.error_message or row.error_code.sentence
        return ApiError(row.error_code, f"producers of {topic}-{row.partition_index}: {message}")
    return tuple(
        ProducerDescription(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.last_timestamp,
            open_from=_known(producer.current_txn_start_offset),
        )
        for producer in row.active_producers
    )
