"""Connections that break in the middle of requests and answers, hundreds of times.

A broker that has stored a batch and a client that never learns of it: only sequences can tell a
retry from a new batch. So the test cuts connections at random places, both ways.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from rookery.client.client import Client
from rookery.client.settings import ClientSettings, ProducerSettings
from rookery.records.recordcodec import Record
from rookery.testing.kafka import KafkaServer
from rookery.testing.ports import HOST, free_port
from rookery.testing.properties import KafkaSettings

PARTITIONS = 4
RECORDS = 30_000


class Cable:
    """Stands before a broker and cuts connections after some bytes, while it is armed."""

    def __init__(self, port: int, seed: int) -> None:
        self._port = port
        self._random = random.Random(seed)
        self._pipes: set[asyncio.Task[None]] = set()
        self.is_cutting = True
        self.cuts = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, self._port)
        except OSError:
            writer.transport.abort()
            return
        ends = (writer, far_writer)
        # Enough for the greeting; then anywhere, in the middle of an answer as well.
        room = self._random.randrange(3_000, 30_000)
        room_back = self._random.randrange(800, 4_000)
        for source, target, left in (
            (reader, far_writer, room),
            (far_reader, writer, room_back),
        ):
            task = asyncio.create_task(self._pipe(source, target, ends, left))
            self._pipes.add(task)
            task.add_done_callback(self._pipes.discard)

    async def close(self) -> None:
        for task in list(self._pipes):
            task.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)

    async def _pipe(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        ends: tuple[asyncio.StreamWriter, asyncio.StreamWriter],
        left: int,
    ) -> None:
        try:
            while data := await source.read(4_096):
                if self.is_cutting and len(data) >= left:
                    target.write(data[:left])
                    self.cuts += 1
                    return
                left -= len(data)
                target.write(data)
                await target.drain()
        except OSError:
            pass
        finally:
            for end in ends:
                end.transport.abort()


@pytest.mark.usefixtures("own_kafka")
@pytest.mark.parametrize("seed", [1, 2])
async def test_cut_connections_neither_lose_nor_duplicate_nor_reorder_records(
    new_name: Callable[[], str], seed: int
) -> None:
    topic, front = new_name(), free_port()
    advertised = {"advertised.listeners": f"PLAINTEXT://{HOST}:{front}"}
    with KafkaServer(KafkaSettings(properties=advertised)) as kafka:
        cable = Cable(kafka.port(), seed)
        async with await asyncio.start_server(cable.accept, HOST, front):
            settings = ClientSettings(
                bootstrap=f"{HOST}:{front}", retry_backoff_ms=5, retry_backoff_max_ms=50
            )
            async with Client(settings) as client:
                await client.create_topic(topic, PARTITIONS, 1)
                async with client.producer(ProducerSettings(batch_bytes=600)) as producer:
                    for number in range(RECORDS):
                        record = Record(None, b"%d" % number)
                        await producer.send(topic, record, number % PARTITIONS)
                    await producer.flush()
                    retried = producer.retried_batches
                cable.is_cutting = False
                values = [
                    [int(record.value or b"") async for record in client.read(topic, partition)]
                    for partition in range(PARTITIONS)
                ]
            await cable.close()
    assert values == [list(range(number, RECORDS, PARTITIONS)) for number in range(PARTITIONS)]
    assert cable.cuts > 20
    assert retried > 20
