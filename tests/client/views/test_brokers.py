"""`client.views.brokers`: a cluster, its brokers and their log directories."""

from __future__ import annotations

from collections.abc import Callable

from rookery.client.client import Client
from rookery.client.configs import ResourceType
from rookery.client.views.brokers import describe_cluster, list_log_dirs, partition_sizes
from rookery.client.views.configs import describe_configs
from rookery.model.offset import LATEST
from rookery.model.partition import TopicPartition
from tests.proxies import Proxies


async def test_cluster_has_its_brokers(bootstrap: str, client: Client, proxies: Proxies) -> None:
    cluster = await describe_cluster(client)

    (broker,) = cluster.brokers
    assert cluster.cluster_id
    assert [f"{broker.host}:{broker.port}"] == proxies.brokers(bootstrap)
    assert broker.rack is None
    assert broker.is_controller


async def test_broker_has_configs_with_sources(client: Client) -> None:
    (broker,) = (await describe_cluster(client)).brokers

    configs = await describe_configs(client, ResourceType.BROKER, str(broker.id))

    names = [config.name for config in configs]
    assert names == sorted(names)
    (own,) = [config for config in configs if config.name == "num.partitions"]
    assert own.value is not None
    assert own.source in {"DEFAULT_CONFIG", "STATIC_BROKER_CONFIG"}
    assert not own.is_own


async def test_log_directories_hold_the_partitions(
    client: Client, new_name: Callable[[], str]
) -> None:
    name = new_name()
    await client.create_topic(name, partitions=3, replication_factor=1)
    await client.produce(name, bytes(3000), partition=2)
    # A partition answers once its broker has made its log, which can be after the topic's creation.
    await client.offsets.find({TopicPartition(name, number): LATEST for number in range(3)})

    (directory,) = await list_log_dirs(client)
    sizes = await partition_sizes(client)

    assert directory.is_usable
    assert directory.path
    assert directory.partitions >= 3
    assert directory.size_bytes >= sizes[TopicPartition(name, 2)] > 3000
    assert sizes[TopicPartition(name, 0)] == 0
    assert directory.total_bytes is not None
    assert directory.usable_bytes is not None
    assert 0 < directory.usable_bytes <= directory.total_bytes
