"""Store some records in a Kafka topic and read them back.

    python examples/produce_and_read.py 127.0.0.1:9092 birds

Any Kafka will do. The topic is created if it is not there.
"""

from __future__ import annotations

import asyncio
import sys

from rookery import ApiError, Error, ErrorCode
from rookery.client import Client, ProducerSettings, Record

BIRDS = ("jackdaw", "rook", "raven", "magpie", "jay")


async def main(bootstrap: str, topic: str) -> None:
    """Store each bird a few times, then read every partition."""
    settings = ProducerSettings(compression="zstd")
    async with Client(bootstrap, producer=settings) as client:
        await ensure_topic(client, topic)

        # One record, waited for.
        stored = await client.produce(topic, value=b"the first", key=b"note")
        print(f"stored in partition {stored.partition} at offset {stored.offset}")

        # Many records: `send` gathers them into batches, and leaving the block delivers them.
        async with client.producer(settings) as producer:
            for number in range(1000):
                bird = BIRDS[number % len(BIRDS)]
                await producer.send(topic, Record(bird.encode(), f"{bird} {number}".encode()))

        for partition in (await client.topic(topic)).partitions:
            records = [record async for record in client.read(topic, partition)]
            keys = sorted({(record.key or b"").decode() for record in records})
            print(f"partition {partition}: {len(records)} records of {', '.join(keys) or 'none'}")


async def ensure_topic(client: Client, topic: str) -> None:
    """Create the topic unless it is there."""
    try:
        await client.create_topic(topic, partitions=3)
    except ApiError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: produce_and_read.py HOST:PORT TOPIC")
    try:
        asyncio.run(main(sys.argv[1], sys.argv[2]))
    except Error as error:
        sys.exit(f"error: {error}")
