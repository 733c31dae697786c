"""Transactional ids, open transactions, and the producers of a topic."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.client.client import Client
from rookery.client.diagnostics import TransactionListing
from rookery.errors import ApiError, ErrorCode
from rookery.model.partition import TopicPartition


@dataclass(frozen=True, slots=True)
class TransactionOverview:
    """A transactional id and its open transaction."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    age_ms: int | None
    """How long the transaction has been open; None if there is none."""
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ProducerOverview:
    """An idempotent or transactional producer of one partition."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    open_from: int | None
    """The first offset of its open transaction; read-committed consumers stop there."""


async def list_transactions(client: Client) -> tuple[TransactionListing, ...]:
    """Return all transactional ids, sorted."""
    return tuple(await client.diagnostics.list_transactions())


async def describe_transaction(client: Client, transactional_id: str) -> TransactionOverview:
    """Return one transactional id.

    Raises:
        ApiError: TRANSACTIONAL_ID_NOT_FOUND.
    """
    description = await client.diagnostics.describe_transaction(transactional_id)
    started = description.start_time_ms
    return TransactionOverview(
        transactional_id=transactional_id,
        state=description.state,
        producer_id=description.producer_id,
        producer_epoch=description.producer_epoch,
        timeout_ms=description.timeout_ms,
        age_ms=None if started is None else max(0, client.clock.now_ms() - started),
        partitions=tuple(sorted(description.partitions)),
    )


async def open_transactions(client: Client) -> tuple[TransactionOverview, ...]:
    """Return the open transactions, the oldest first."""
    overviews = []
    for listed in await client.diagnostics.list_transactions():
        if listed.state != "Ongoing":
            continue
        try:
            overviews.append(await describe_transaction(client, listed.transactional_id))
        except ApiError as error:
            # It expired after it was listed.
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
    still_open = [overview for overview in overviews if overview.age_ms is not None]
    return tuple(sorted(still_open, key=lambda overview: overview.age_ms or 0, reverse=True))


async def list_producers(client: Client, topic: str) -> tuple[ProducerOverview, ...]:
    """Return the producers of all partitions of a topic that have a leader."""
    view = (await client.admin.describe_topics([topic]))[topic]
    places = [TopicPartition(topic, number) for number in view.available]
    by_place = await client.diagnostics.describe_producers(places)
    return tuple(
        ProducerOverview(
            topic=topic,
            partition=place.partition,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.last_timestamp,
            open_from=producer.open_from,
        )
        for place in sorted(by_place)
        for producer in sorted(by_place[place], key=lambda producer: producer.producer_id)
    )
