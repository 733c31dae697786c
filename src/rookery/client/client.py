"""The client's front: one object for everything, and its life from first use to close."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from types import TracebackType
from typing import Self

from rookery.client.admin import Admin
from rookery.client.cluster import TopicView
from rookery.client.connections import Connections
from rookery.client.diagnostics import Diagnostics
from rookery.client.fetch import Fetcher, FetchSettings
from rookery.client.groups import GroupAdmin
from rookery.client.metadata import Metadata
from rookery.client.offsets import OffsetQueries
from rookery.client.produce import Producer
from rookery.client.producerbatch import RecordLocation
from rookery.client.retry import ClientRetrier
from rookery.client.router import Router
from rookery.client.settings import ClientSettings, ProducerSettings
from rookery.clock import Clock, Random, SystemClock, SystemRandom
from rookery.model.offset import EARLIEST
from rookery.model.partition import TopicPartition
from rookery.records.record import Record


class Client:
    """A connection to a Kafka cluster, of whatever make.

        async with Client("127.0.0.1:9092") as client:
            await client.create_topic("birds", partitions=10)
            await client.produce("birds", value=b"jackdaw", key=b"corvus")
            async for record in client.read("birds", partition=0):
                print(record.offset, record.value)

    Its parts can be used by themselves: `admin` for topics, configs and the cluster, `groups` for
    consumer groups and their offsets, `offsets` for what partitions hold, `fetcher` for raw batches
    of many partitions, `diagnostics` for disks, transactions and producers, and `producer()` for
    producers with settings of their own. `rookery.client.views` combines their answers.

    All calls raise an `ApiError` for what the cluster refuses, and `Unavailable` when the deadline
    passes first; retries in between are the client's own affair.
    """

    def __init__(
        self,
        settings: ClientSettings | str,
        *,
        producer: ProducerSettings | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        """Be ready to connect; nothing is sent before the first call.

        Args:
            settings: all of them, or only the bootstrap addresses.
            producer: how `produce` works.
            clock: the time; the system's own unless given.
            random: chance; the system's own unless given.

        Raises:
            ConfigError: a setting is wrong; the text names it.
        """
        if isinstance(settings, str):
            settings = ClientSettings(bootstrap=settings)
        self.settings = settings
        self.clock = clock or SystemClock()
        self.random = random or SystemRandom()
        self._producer_settings = producer or ProducerSettings()
        self._producers: list[Producer] = []
        self._default_producer: Producer | None = None
        self._connections = Connections(settings, self.clock, self.random)
        self.metadata = Metadata(settings, self._connections, self.clock)
        retrier = ClientRetrier(settings, self.clock, self.random)
        self.router = Router(settings, self._connections, self.metadata, retrier)
        self.offsets = OffsetQueries(self.router)
        self.fetcher = Fetcher(self.router, self.offsets)
        self.groups = GroupAdmin(self.router)
        self.admin = Admin(self.router)
        self.diagnostics = Diagnostics(self.router)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def produce(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp: int = -1,
    ) -> RecordLocation:
        """Store one record and wait until it is safe; return where it is.

        Many at once go faster through `producer`, whose `send` does not wait for each.

        Args:
            topic: where to.
            value: the record's content; None marks a key as deleted in a compacted topic.
            key: what decides the partition; records of one key stay in order.
            headers: names and values that travel along.
            partition: which one, whatever the key.
            timestamp: in milliseconds since 1970; -1 for now.
        """
        if self._default_producer is None:
            self._default_producer = self.producer(self._producer_settings)
        record = Record(key, value, tuple(headers), timestamp)
        delivery = await self._default_producer.send(topic, record, partition)
        return await delivery.wait()

    def producer(self, settings: ProducerSettings | None = None) -> Producer:
        """Make a producer; it is closed with the client, or earlier by its own `close`."""
        made = Producer(self.router, settings or self._producer_settings, self.clock, self.random)
        self._producers = [old for old in self._producers if not old.is_closed]
        self._producers.append(made)
        return made

    def read(
        self,
        topic: str,
        partition: int,
        *,
        offset: int = EARLIEST,
        follow: bool = False,
        settings: FetchSettings | None = None,
    ) -> AsyncGenerator[Record, None]:
        """Go through the records of a partition.

        Args:
            topic: which topic.
            partition: which of its partitions.
            offset: where to begin: a number, EARLIEST or LATEST.
            follow: go on with records that come later, for ever; otherwise it ends where the
                partition ended at the beginning.
            settings: how much to read at once, and what to see of transactions.
        """
        place = TopicPartition(topic, partition)
        return self.fetcher.read(place, offset, follow=follow, settings=settings)

    async def topic(self, name: str, timeout_ms: int | None = None) -> TopicView:
        """Look at a topic: its id, partitions, leaders and replicas."""
        deadline = self.router.retrier.deadline(timeout_ms)
        return await self.router.retrier.run(
            f"look at topic {name!r}", deadline, lambda: self.metadata.topic(name, deadline)
        )

    async def create_topic(
        self, name: str, partitions: int = -1, replication_factor: int = -1
    ) -> None:
        """Create a topic and wait until it can be used; -1 means the broker's default.

        `admin.create_topics` can set configs and replicas as well.
        """
        await self.admin.create_topic(name, partitions, replication_factor)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records."""
        await self.admin.delete_topics([name])

    async def close(self) -> None:
        """Deliver what producers still hold, within their deadline, then close everything.

        Raises:
            Error: a record that nobody awaited was not delivered.
        """
        try:
            results = await asyncio.gather(
                *(producer.close() for producer in self._producers), return_exceptions=True
            )
        finally:
            await self._connections.close()
        for result in results:
            if isinstance(result, BaseException):
                raise result
