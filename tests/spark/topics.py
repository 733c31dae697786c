"""Topics for Spark to read, written by our own client through a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from rookery.client.admin import NewTopic
from rookery.client.client import Client
from rookery.records.recordcodec import Record


def fill_topic(
    bootstrap: str,
    topic: str,
    values: Sequence[bytes],
    partitions: int = 2,
    configs: Mapping[str, str] | None = None,
    keys: int = 0,
) -> None:
    """Create a topic with these values, one after the other in turn over the partitions.

    Args:
        bootstrap: the address of the broker.
        topic: its name.
        values: one for each record.
        partitions: how many.
        configs: the configs of the topic.
        keys: how many different ones there are; 0: each record has its own.
    """
    new = NewTopic(name=topic, partitions=partitions, configs=configs or {})

    async def fill() -> None:
        async with Client(bootstrap) as client:
            await client.admin.create_topics([new])
            async with client.producer() as producer:
                for number, value in enumerate(values):
                    record = Record(b"key %d" % (number % keys if keys else number), value)
                    await producer.send(topic, record, number % partitions)

    asyncio.run(fill())
