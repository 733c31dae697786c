"""Transactions that are committed, aborted or left open, checked against the log."""

from __future__ import annotations

import asyncio
from typing import Literal

from confluent_kafka import Producer

from rookery.client import Client
from rookery.model.offset import LATEST
from rookery.model.partition import TopicPartition
from rookery.testing.kafkalogs import NOON
from rookery.testing.wait import wait_until


def transact(
    bootstrap: str,
    place: tuple[str, int],
    count: int,
    end: Literal["commit", "abort", "open"],
    time_ms: int = NOON + 10_000,
) -> Producer:
    """Write rows in a transaction and end it; return when its marker is in the log."""
    topic, partition = place
    name = f"{topic}-{partition}-{count}"
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(count):
        text = b"t%d" % number
        producer.produce(topic, text, text, partition, timestamp=time_ms + number)
    assert producer.flush(60) == 0
    if end != "open":
        finish(bootstrap, place, producer, end)
    return producer


def finish(
    bootstrap: str, place: tuple[str, int], producer: Producer, end: Literal["commit", "abort"]
) -> None:
    """End a transaction, and wait until the log tells so: markers come after the answer."""
    if end == "commit":
        producer.commit_transaction(60)
    else:
        producer.abort_transaction(60)
    wait_until(
        lambda: asyncio.run(_ends(bootstrap, TopicPartition(*place))),
        "the marker of the transaction",
        accepts=lambda ends: ends[0] == ends[1],
    )


async def _ends(bootstrap: str, place: TopicPartition) -> tuple[int, int]:
    """Return the stable end of a partition, and its end."""
    async with Client(bootstrap) as client:
        high = (await client.offsets.find({place: LATEST}))[place].offset
        stable = (await client.offsets.find({place: LATEST}, committed=True))[place].offset
    return stable, high
