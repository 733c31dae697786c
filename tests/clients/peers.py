"""The brokers that other clients use: Rookery, and a real Kafka for comparison."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
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
from rookery.testing.kafka import KafkaCluster, KafkaServer
from tests.proxies import Proxies, through

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KINDS = ("rookery", ETCD, *through("rookery"))
"""Rookery over a folder, over S3 and etcd, and through a proxy."""
BOTH = (
    *KINDS,
    *(
        pytest.param(kind, marks=pytest.mark.kafka)
        for kind in ("kafka", *through("kafka", "cluster"))
    ),
)
"""Rookery, and a real Kafka to see that it is right; through a proxy also three of them."""
_FIXTURES = {
    "rookery": "rookery_broker",
    ETCD: "objects_broker",
    "kafka": "kafka",
    "cluster": "kafka_cluster",
}
# Many tests write records of years ago, which retention would take away.
_PATIENT = ("--upkeep-interval-ms", "600000")

FindBroker = Callable[[str], BrokerProcess]

_numbers = count(1)


@contextmanager
def serve(folder: Path) -> Iterator[BrokerProcess]:
    """A Rookery with Kafka's own defaults."""
    with BrokerProcess(folder, flags=["--durability", "os", *_PATIENT]) as broker:
        yield broker


@contextmanager
def serve_each(folders: pytest.TempPathFactory) -> Iterator[FindBroker]:
    """Return a function that finds the Rookery of a name; it starts when it is first asked for."""
    with ExitStack() as stack:

        @cache
        def find(name: str) -> BrokerProcess:
            return stack.enter_context(serve(folders.mktemp(name) / "data"))

        yield find


@contextmanager
def serve_objects(backend: ServerBackend, folder: Path) -> Iterator[Host]:
    """A Rookery that keeps nothing in a folder."""
    store, cluster = backend.store(folder.name), backend.cluster(folder.name)
    with Host(folder / "host", store=store, cluster=cluster, flags=_PATIENT) as broker:
        yield broker


def address(kind: str, request: pytest.FixtureRequest) -> str:
    """The address of the one that a test's parameter names."""
    name, _, mode = kind.partition("-")
    server: BrokerProcess | KafkaServer | KafkaCluster
    if mode and name == "rookery":
        server = request.getfixturevalue("proxied_brokers")(mode)
    else:
        server = request.getfixturevalue(_FIXTURES[name])
    if not mode:
        return server.bootstrap
    proxies: Proxies = request.getfixturevalue("proxies")
    return proxies.find(server.bootstrap, mode).bootstrap


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
        place, codecs = TopicPartition(topic, partition), set[str]()
        async with Client(bootstrap) as client:
            position = await client.offsets.resolve(place, EARLIEST)
            end = await client.offsets.end(place)
            while position < end:
                fetched = (await client.fetcher.fetch({place: position}))[place]
                headers = [batch.header for batch in fetched.batches()]
                codecs.update(header.codec.name for header in headers if header.record_count > 1)
                position = fetched.next_offset
        return codecs

    return asyncio.run(look())
