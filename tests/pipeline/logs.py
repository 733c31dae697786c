"""A log in a store, written through a real broker that is stopped before anyone else reads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rookery.client.admin import NewTopic
from rookery.client.client import Client
from rookery.errors import ApiError, ErrorCode
from rookery.records.recordcodec import Record
from rookery.testing.brokers import Host


class Message(NamedTuple):
    """A record to be written."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp: int = -1
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Log:
    """A cluster's log below a folder, or in a store of its own."""

    def __init__(self, folder: Path, store: str = "") -> None:
        self._folder = folder
        self.store = store or f"file://{folder / 'log'}"
        self._runs = 0

    def write(self, topic: str, messages: Iterable[Message], partitions: int = 2) -> None:
        """Start a broker, write, and stop it."""
        self._runs += 1
        name = self._folder / f"broker-{self._runs}"
        with Host(name, store=self.store) as host:
            asyncio.run(_write(host.bootstrap, topic, list(messages), partitions))
            host.stop()


async def _write(bootstrap: str, topic: str, messages: list[Message], partitions: int) -> None:
    async with Client(bootstrap) as client:
        try:
            await client.admin.create_topics([NewTopic(name=topic, partitions=partitions)])
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        async with client.producer() as producer:
            for number, message in enumerate(messages):
                partition = number % partitions if message.partition is None else message.partition
                record = Record(message.key, message.value, message.headers, message.timestamp)
                await producer.send(topic, record, partition)
