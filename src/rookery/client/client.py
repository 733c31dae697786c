"""The client: one object for all functions, from first use to close."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from types import TracebackType
from typing import Self

from rookery.client.acls import AclAdmin
from rookery.client.admin import Admin
from rookery.client.connect.cluster import TopicView
from rookery.client.connect.connections import Connections
from rookery.client.connect.metadata import Metadata
from rookery.client.connect.retry import ClientRetrier
from rookery.client.connect.router import Router
from rookery.client.diagnostics import Diagnostics
from rookery.client.fetch import Fetcher, FetchSettings
from rookery.client.groups import GroupAdmin
from rookery.client.offsets import OffsetQueries
from rookery.client.produce.producer import Producer
from rookery.client.produce.producerbatch import RecordLocation
from rookery.client.quotas import QuotaAdmin
from rookery.client.settings import ClientSettings, ProducerSettings
from rookery.client.tokens import TokenAdmin
from rookery.client.users import UserAdmin
from rookery.clock import Clock, Random, SystemClock, SystemRandom
from rookery.model.offset import EARLIEST
from rookery.model.partition import TopicPartition
from rookery.records.recordcodec import Record


class Client:
    """A connection to any Kafka-compatible cluster.

        async with Client("127.0.0.1:9092") as client:
            await client.create_topic("birds", partitions=10)
            await client.produce("birds", value=b"jackdaw", key=b"corvus")
            async for record in client.read("birds", partition=0):
                print(record.offset, record.value)

    Its parts can be used directly. `admin` manages topics, configs and the cluster, `groups`
    consumer groups and their offsets. `offsets` finds offsets of partitions, `fetcher` reads raw
    batches of many partitions, and `diagnostics` describes disks, transactions and producers.
    `users`, `acls`, `quotas` and `tokens` manage SCRAM users, access rules, client quotas and
    delegation tokens.
    `producer()` makes producers with their own settings. Functions of this package such as
    `describe_topics` combine their results.

    All calls raise `ApiError` if the cluster rejects a request, and `Unavailable` when the deadline
    expires. The client retries in between.
    """

    def __init__(
        self,
        settings: ClientSettings | str,
        *,
        producer: ProducerSettings | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        """Create a client; it connects on the first call.

        Args:
            settings: all settings, or only the bootstrap addresses.
            producer: the settings of `produce`.
            clock: the clock; the system's by default.
            random: the random source; the system's by default.

        Raises:
            ConfigError: a setting is wrong; the message names it.
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
        self.users = UserAdmin(self.router, self.random)
        self.acls = AclAdmin(self.router)
        self.quotas = QuotaAdmin(self.router)
        self.tokens = TokenAdmin(self.router)

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
        """Store one record and wait until it is acknowledged; return its location.

        For many records, `producer` is faster, because its `send` does not wait for each.

        Args:
            topic: the topic.
            value: the record's content; None marks a key as deleted in a compacted topic.
            key: determines the partition; records with the same key stay in order.
            headers: names and values that are stored with the record.
            partition: the partition, regardless of the key.
            timestamp: in milliseconds since 1970; -1 for now.
        """
        if self._default_producer is None:
            self._default_producer = self.producer(self._producer_settings)
        record = Record(key, value, tuple(headers), timestamp)
        delivery = await self._default_producer.send(topic, record, partition)
        return await delivery.wait()

    def producer(self, settings: ProducerSettings | None = None) -> Producer:
        """Create a producer; it is closed with the client, or earlier by its own `close`."""
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
        """Iterate over the records of a partition.

        Args:
            topic: the topic.
            partition: the partition number.
            offset: where to start: a number, EARLIEST or LATEST.
            follow: continue with new records, without end; otherwise stop at the end that the
                partition had at the start.
            settings: the read size and the isolation level.
        """
        place = TopicPartition(topic, partition)
        return self.fetcher.read(place, offset, follow=follow, settings=settings)

    async def topic(self, name: str, timeout_ms: int | None = None) -> TopicView:
        """Return a topic's id, partitions, leaders and replicas."""
        deadline = self.router.retrier.deadline(timeout_ms)
        return await self.router.retrier.run(
            f"look at topic {name!r}", deadline, lambda: self.metadata.topic(name, deadline)
        )

    async def create_topic(
        self, name: str, partitions: int = -1, replication_factor: int = -1
    ) -> None:
        """Create a topic and wait until it can be used; -1 means the broker's default.

        `admin.create_topics` can also set configs and replicas.
        """
        await self.admin.create_topic(name, partitions, replication_factor)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records."""
        await self.admin.delete_topics([name])

    async def close(self) -> None:
        """Flush all producers within their deadlines, then close everything.

        Raises:
            Error: a record whose delivery was not awaited was not delivered.
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
