"""The clients of the measurements, each run in a process of its own.

python clients.py '{"kind": "produce", "bootstrap": …}'    prints what it found as JSON
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from rookery.net.loop import run_loop
from rookery.store.open import open_store

MEBIBYTE: Final = 1024 * 1024


def ask(kind: str, **arguments: object) -> dict[str, float]:
    """Run one of the clients below in a process, and return what it found."""
    done = subprocess.run(
        [sys.executable, __file__, json.dumps({"kind": kind, **arguments})],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"the client {kind} failed: {done.stderr[-2000:]}")
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


# The store itself, through the layer that brokers use.


async def _in_flight(
    count: int, lanes: int, work: Callable[[int], Coroutine[Any, Any, int]]
) -> int:
    """Run a function for every number, several at the same time; return the sum."""
    numbers = iter(range(count))

    async def lane() -> int:
        return sum([await work(number) for number in numbers])

    return sum(await asyncio.gather(*(lane() for _ in range(lanes))))


def put(*, url: str, count: int, size: int, lanes: int) -> dict[str, float]:
    """Put objects of a size."""
    data = os.urandom(size)

    async def work() -> float:
        store = open_store(url)

        async def put(number: int) -> int:
            await store.create(f"raw/{number:06}", [data])
            return size

        await store.create("raw/first", [b"opens the connection"])
        begun = time.perf_counter()
        moved = await _in_flight(count, lanes, put)
        return moved / (time.perf_counter() - begun)

    return {"MB/s": run_loop(work()) / 1e6}


def get(*, url: str, count: int, size: int, lanes: int, block: int) -> dict[str, float]:
    """Get blocks of the objects that `put` has left."""
    blocks = size // block

    async def work() -> float:
        store = open_store(url)

        async def get(number: int) -> int:
            key = f"raw/{number // blocks:06}"
            return len(await store.read(key, number % blocks * block, block))

        await store.read("raw/first")
        begun = time.perf_counter()
        moved = await _in_flight(count * blocks, lanes, get)
        return moved / (time.perf_counter() - begun)

    return {"MB/s": run_loop(work()) / 1e6}


# librdkafka.


def produce(
    *, bootstrap: str, topic: str, count: int, size: int, partitions: int, batch: int
) -> dict[str, float]:
    """Produce as fast as librdkafka can, in batches of a size."""
    from confluent_kafka import Producer  # noqa: PLC0415 (not every client needs it)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20, "batch.size": batch,
            "queue.buffering.max.kbytes": 1_000_000, "queue.buffering.max.messages": 2_000_000,
        }
    )  # fmt: skip
    value, errors = os.urandom(size), []
    for partition in range(partitions):
        producer.produce(topic, value=value, partition=partition)
    producer.flush()

    def told(error: object, _message: object) -> None:
        if error is not None:
            errors.append(error)

    begun = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(
                    topic, value=value, partition=number % partitions, on_delivery=told
                )
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()
    spent = time.perf_counter() - begun
    if errors:
        raise SystemExit(f"{len(errors)} records failed: {errors[0]}")
    return {"MB/s": count * size / spent / 1e6, "seconds": spent}


def consume(
    *, bootstrap: str, topic: str, count: int, size: int, partitions: int
) -> dict[str, float]:
    """Consume all from the beginning; the time runs from the assignment on."""
    from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False,
            # By default the client rests a second whenever its queue is full.
            "fetch.queue.backoff.ms": 2, "fetch.message.max.bytes": 4 * MEBIBYTE,
        }
    )  # fmt: skip
    consumer.list_topics(topic, 30)
    begun = time.perf_counter()
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    received, first = 0, 0.0
    while received < count:
        messages = consumer.consume(10_000, 30)
        if not messages:
            raise SystemExit(f"only {received} of {count} records came")
        first = first or time.perf_counter() - begun
        received += len(messages)
    spent = time.perf_counter() - begun
    consumer.close()
    return {"MB/s": count * size / spent / 1e6, "first ms": first * 1e3}


# As the clients of the store above, these look at no record: what is measured is the broker's own.


def send(
    *, bootstrap: str, topic: str, count: int, size: int, partitions: int, batch: int
) -> dict[str, float]:
    """Send one batch repeatedly to all partitions, with several requests in flight to each."""
    import pyarrow as pa  # noqa: PLC0415 (not every client needs it)

    from rookery.client.client import Client  # noqa: PLC0415
    from rookery.client.connect.connections import Lane  # noqa: PLC0415
    from rookery.records.columns import encode  # noqa: PLC0415
    from rookery.wire.messages import produce as wire  # noqa: PLC0415

    rows = pa.record_batch({"value": [os.urandom(size)] * (batch // (size + 20))})
    [data] = encode(rows)
    rounds = -(-count // (rows.num_rows * partitions))

    async def work() -> float:
        async with Client(bootstrap) as client:
            view = await client.topic(topic)
            address = client.metadata.node(view.partitions[0].leader).address
            link = await client.router.connections.get(address, Lane.PRODUCE)
            version = link.versions.choose(wire.PRODUCE)

            async def send(number: int) -> int:
                rows_of = wire.PartitionProduceData(index=number % partitions, records=data)
                topics = [
                    wire.TopicProduceData(name=topic, topic_id=view.id, partition_data=[rows_of])
                ]
                request = wire.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)
                answer = await link.call(wire.PRODUCE, version, request, 60_000)
                code = answer.responses[0].partition_responses[0].error_code
                if code:
                    raise SystemExit(f"a batch was refused: {code.name}")
                return rows.num_rows * size

            begun = time.perf_counter()
            moved = await _in_flight(rounds * partitions, 8 * partitions, send)
            return moved / (time.perf_counter() - begun)

    return {"MB/s": run_loop(work()) / 1e6}


def fetch(
    *, bootstrap: str, topic: str, count: int, size: int, partitions: int, readers: int = 2
) -> dict[str, float]:
    """Fetch all batches from the beginning, over a few connections, and count the offsets."""
    from rookery.client.client import Client  # noqa: PLC0415
    from rookery.client.fetch import FetchSettings  # noqa: PLC0415
    from rookery.model.partition import TopicPartition  # noqa: PLC0415

    settings = FetchSettings(partition_max_bytes=4 * MEBIBYTE)
    firsts: list[float] = []

    async def reader(client: Client, ends: dict[TopicPartition, int], begun: float) -> int:
        positions = dict.fromkeys(ends, 0)
        while positions:
            for place, fetched in (await client.fetcher.fetch(positions, settings)).items():
                positions[place] = fetched.next_offset
                if positions[place] >= ends[place]:
                    del positions[place]
            firsts.append(time.perf_counter() - begun)
        return sum(ends.values())

    async def work() -> tuple[int, float]:
        clients = [Client(bootstrap) for _ in range(readers)]
        # As with librdkafka above, the time runs when it is known what to read.
        ends = [
            {TopicPartition(topic, number): await _end(client, topic, number) for number in numbers}
            for client, numbers in (
                (client, range(first, partitions, readers)) for first, client in enumerate(clients)
            )
        ]
        begun = time.perf_counter()
        crew = [reader(client, of, begun) for client, of in zip(clients, ends, strict=True)]
        received = sum(await asyncio.gather(*crew))
        spent = time.perf_counter() - begun
        for client in clients:
            await client.close()
        return received, spent

    received, spent = run_loop(work())
    if received < count:
        raise SystemExit(f"only {received} of {count} records came")
    return {"MB/s": count * size / spent / 1e6, "first ms": min(firsts) * 1e3}


async def _end(client: Any, topic: str, partition: int) -> int:
    from rookery.model.partition import TopicPartition  # noqa: PLC0415

    return int(await client.offsets.end(TopicPartition(topic, partition)))


CLIENTS: Final[dict[str, Callable[..., dict[str, float]]]] = {
    "put": put, "get": get, "produce": produce, "consume": consume,
    "fetch": fetch, "send": send,
}  # fmt: skip


def main() -> None:
    """Be the client that is asked for."""
    arguments = json.loads(sys.argv[1])
    print(json.dumps(CLIENTS[arguments.pop("kind")](**arguments)))


if __name__ == "__main__":
    main()
