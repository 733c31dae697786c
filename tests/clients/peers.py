"""Where the clients of others are sent: to Rookery, and to a real Kafka to see what is right."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from rookery.client.admin import NewTopic
from rookery.client.client import Client
from rookery.model.offset import EARLIEST
from rookery.model.partition import TopicPartition
from rookery.testing.backends import ETCD, ServerBackend
from rookery.testing.broker import BrokerProcess
from rookery.testing.brokers import Host
from rookery.testing.kafka import KafkaServer

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KINDS = ("rookery", ETCD)
"""Rookery over a folder, and over S3 and etcd."""
BOTH = (*KINDS, pytest.param("kafka", marks=pytest.mark.kafka))
"""Rookery, and a real Kafka to see that it is right."""
# Many tests write records of years ago, which retention would take away.
_PATIENT = ("--upkeep-interval-ms", "600000")

_numbers = count(1)


@contextmanager
def serve(folder: Path) -> Iterator[BrokerProcess]:
    """A Rookery with Kafka's own defaults."""
    with BrokerProcess(folder, flags=["--durability", "os", *_PATIENT]) as broker:
        yield broker


@contextmanager
def serve_objects(backend: ServerBackend, folder: Path) -> Iterator[Host]:
    """A Rookery that keeps nothing in a folder."""
    store, cluster = backend.store(folder.name), backend.cluster(folder.name)
    with Host(folder / "host", store=store, cluster=cluster, flags=_PATIENT) as broker:
        yield broker


def address(kind: str, request: pytest.FixtureRequest) -> str:
    """The address of the one that a test's parameter names."""
    if kind in KINDS:
        name = "rookery_broker" if kind == "rookery" else "objects_broker"
        broker: BrokerProcess = request.getfixturevalue(name)
        return broker.bootstrap
    server: KafkaServer = request.getfixturevalue("kafka")
    return server.bootstrap


def new_topic(bootstrap: str, partitions: int = 1, **configs: str) -> str:
    """Create a topic that no other test uses, with our own client."""
    name = f"clients-{next(_numbers)}"
    settings = {key.replace("_", "."): value for key, value in configs.items()}

    async def create() -> None:
        async with Client(bootstrap) as client:
            topic = NewTopic(
                name=name, partitions=partitions, replication_factor=1, configs=settings
            )
            await client.admin.create_topics([topic])

    asyncio.run(create())
    return name


def stored_codecs(bootstrap: str, topic: str, partition: int = 0) -> set[str]:
    """The codecs of the batches as they are stored.

    Those of one record do not count: they would not get smaller, so clients leave them alone.
    """

    async def look() -> set[str]:
        place, found = TopicPartition(topic, partition), set[str]()
        async with Client(bootstrap) as client:
            position = await client.offsets.resolve(place, EARLIEST)
            end = await client.offsets.end(place)
            while position < end:
                fetched = (await client.fetcher.fetch({place: position}))[place]
                headers = [batch.header for batch in fetched.batches()]
                found.update(one.codec.name for one in headers if one.record_count > 1)
                position = fetched.next_offset
        return found

    return asyncio.run(look())
