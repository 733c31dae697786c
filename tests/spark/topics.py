"""Topics for Spark to read, written by our own client through a broker."""

from __future__ import annotations

import asyncio

from rookery.client.admin import NewTopic
from rookery.client.client import Client
from rookery.records.record import Record


def fill_topic(bootstrap: str, topic: str, values: list[bytes], partitions: int = 2) -> None:
    """Create a topic with these values, one after the other in turn over the partitions."""

    async def fill() -> None:
        async with Client(bootstrap) as client:
            await client.admin.create_topics([NewTopic(name=topic, partitions=partitions)])
            async with client.producer() as producer:
                for number, value in enumerate(values):
                    record = Record(b"key %d" % number, value)
                    await producer.send(topic, record, number % partitions)

    asyncio.run(fill())
