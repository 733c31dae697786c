"""`client.views.transactions`: open transactions."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from rookery.client.client import Client
from rookery.client.produce.transactions import TransactionalWriter
from rookery.client.views.transactions import (
    describe_transaction,
    list_producers,
    list_transactions,
    open_transactions,
)
from rookery.errors import ApiError, ErrorCode
from rookery.model.partition import TopicPartition


async def test_open_transaction_is_shown_until_it_ends(
    client: Client, new_name: Callable[[], str]
) -> None:
    place, name = TopicPartition(new_name(), 1), new_name()
    await client.create_topic(place.topic, partitions=2, replication_factor=1)
    await client.produce(place.topic, b"before", partition=1)
    writer = TransactionalWriter(client, name, timeout_ms=30_000)
    await writer.start()
    await writer.begin([place])
    await writer.write(place, pa.record_batch({"value": [b"one", b"two"]}))

    (overview,) = [
        transaction
        for transaction in await open_transactions(client)
        if transaction.transactional_id == name
    ]
    producers = await list_producers(client, place.topic)
    await writer.commit()

    assert (overview.state, overview.timeout_ms, overview.partitions) == (
        "Ongoing",
        30_000,
        (place,),
    )
    assert overview.age_ms is not None
    (ours,) = [producer for producer in producers if producer.producer_id == overview.producer_id]
    assert (ours.topic, ours.partition, ours.producer_epoch) == (*place, overview.producer_epoch)
    assert (ours.open_from, ours.last_sequence) == (1, 1)
    assert len(producers) == 2
    assert {producer.open_from for producer in producers} == {None, 1}

    assert name in [transaction.transactional_id for transaction in await list_transactions(client)]
    assert name not in [
        transaction.transactional_id for transaction in await open_transactions(client)
    ]


async def test_unknown_transactional_id_is_refused(client: Client) -> None:
    with pytest.raises(ApiError) as caught:
        await describe_transaction(client, "never-there")
    assert caught.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
