"""Backings: what all of them do for a broker, and how their traits differ."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from rookery.broker.config import configs
from rookery.broker.config.configs import TopicCache
from rookery.broker.settings import BrokerSettings
from rookery.broker.storage.backing import Backing
from rookery.broker.storage.directory import DirectoryBacking
from rookery.broker.storage.maintenance import snapshot_entries
from rookery.broker.storage.objectlog import ObjectLogBacking, origin_of
from rookery.broker.storage.open import open_backing
from rookery.clock import SystemClock, SystemRandom
from rookery.cluster.entry import MAX_PAYLOAD_BYTES
from rookery.cluster.events.brokerevents import BrokerRegistered
from rookery.cluster.numbers import Numbers
from rookery.errors import ConfigError, Corrupt
from rookery.log.read.tail import Tail
from rookery.service.periodic import PeriodicTasks
from rookery.wire.messages.update_features import UPDATE_FEATURES
from tests.logdir.made import CLUSTER, FIRST_LOG, NODE, make_directory, topic_id

Open = Callable[..., Awaitable[Backing]]
ETCD = "etcd://127.0.0.1:1/log"
"""Opening such a log makes no connection."""


def make(**settings: Any) -> Backing:
    topic_configs = TopicCache(configs.resolve).of
    return open_backing(BrokerSettings(**settings), SystemClock(), Tail(1 << 20), topic_configs)


def new_cluster() -> str:
    return "a-new-cluster"


@pytest.fixture
async def start() -> AsyncIterator[Open]:
    """Opens backings, and closes them after the test."""
    async with AsyncExitStack() as stack:

        async def opened(**settings: Any) -> Backing:
            backing = make(**settings)
            stack.push_async_callback(backing.close)
            stack.push_async_callback(backing.replica.close)
            await backing.open(new_cluster)
            return backing

        yield opened


@pytest.fixture(params=["folder", "store", "directory"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Return the settings of one kind of backing."""
    if request.param == "folder":
        return {"data": str(tmp_path / "data")}
    if request.param == "store":
        return {"store": str(tmp_path / "store")}
    return {"log_dir": str(make_directory(tmp_path / "logs", {"birds": [[b"rook"]]}))}


async def test_open_backing_has_a_cluster_id_and_accepts_flushes(
    start: Open, settings: dict[str, Any]
) -> None:
    backing = await start(**settings)

    assert backing.replica.state.cluster_id == (
        CLUSTER if "log_dir" in settings else "a-new-cluster"
    )
    registration = BrokerRegistered(
        process_id=bytes(16), node_id=backing.traits.node_id, host="127.0.0.1", port=1
    )
    target = backing.flush_target(Numbers(await backing.replica.register(registration)))
    assert target.failure is None
    assert (target.journal is not None) == ("data" in settings)
    await target.close()


async def test_node_lock_has_one_holder(start: Open, settings: dict[str, Any]) -> None:
    backing = await start(**settings)
    first, second = (backing.node_lock(SystemRandom()) for _ in range(2))

    assert first.hold(1)
    # The directory itself has one broker, so that its node ids need no lock.
    assert second.hold(1) == ("log_dir" in settings)

    for lock in (first, second):
        lock.close()


async def test_backing_lists_the_dependencies_of_a_broker(
    start: Open, settings: dict[str, Any]
) -> None:
    backing = await start(**settings)

    assert set(backing.probes) <= set(backing.dependencies)
    assert ("disk" in backing.dependencies) == ("data" in settings)
    for probe in backing.probes.values():
        await probe()


async def test_only_our_own_object_format_needs_a_caretaker(
    start: Open, settings: dict[str, Any]
) -> None:
    backing = await start(**settings)
    tasks = PeriodicTasks()

    await backing.start(tasks)

    is_directory = "log_dir" in settings
    assert (backing.maintenance is None) == is_directory
    assert (backing.cache is None) == is_directory
    assert bool(tasks._tasks) == is_directory
    await tasks.stop()


async def test_traits_of_a_directory(start: Open, tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "logs", {"birds": [[b"rook"]]})

    backing = await start(log_dir=str(folder), read_only=True)

    assert isinstance(backing, DirectoryBacking)
    assert backing.traits.node_id == NODE
    assert backing.traits.is_on_this_host
    assert backing.traits.flush.inline_bytes == 0
    assert backing.traits.hidden_apis == {UPDATE_FEATURES.key}
    assert not backing.traits.expires_offsets


@pytest.mark.parametrize(
    ("settings", "is_on_this_host", "inline_bytes"),
    [
        ({}, True, MAX_PAYLOAD_BYTES),
        ({"inline_bytes": 7}, True, 7),
        ({"store": "memory:x"}, False, MAX_PAYLOAD_BYTES),
        ({"store": "memory:x", "cluster": "memory:x"}, False, MAX_PAYLOAD_BYTES),
        ({"store": "memory:x", "cluster": ETCD}, False, 0),
        ({"store": "memory:x", "cluster": ETCD, "inline_bytes": 7}, False, 7),
    ],
)
async def test_traits_of_objects(
    tmp_path: Path,
    settings: dict[str, Any],
    is_on_this_host: bool,
    inline_bytes: int,
) -> None:
    backing = make(data=str(tmp_path), node_id=3, **settings)

    assert isinstance(backing, ObjectLogBacking)
    assert backing.traits.is_on_this_host is is_on_this_host
    assert backing.traits.flush.inline_bytes == inline_bytes
    assert backing.traits.node_id == 3
    assert backing.traits.expires_offsets
    assert not backing.traits.hidden_apis
    await backing.close()


@pytest.mark.parametrize(
    ("settings", "entries"),
    [
        ({}, 10_000),
        ({"snapshot_entries": 5}, 5),
        ({"store": "memory:x"}, 1_000),
        ({"store": "memory:x", "snapshot_entries": 5}, 5),
        ({"store": "memory:x", "cluster": ETCD}, 10_000),
    ],
)
def test_snapshots_are_frequent_if_a_start_must_replay_entries_one_by_one(
    settings: dict[str, Any], entries: int
) -> None:
    made = BrokerSettings(**settings)

    assert snapshot_entries(made, origin_of(made)) == entries


async def test_a_store_of_another_cluster_is_refused(start: Open, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    await start(store=store)
    elsewhere = f"sqlite://{tmp_path}/cluster.sqlite"

    with pytest.raises(
        ConfigError, match="a-new-cluster, but the cluster log is that of no cluster"
    ):
        await start(store=store, cluster=elsewhere)


async def test_a_directory_without_a_cluster_is_refused(start: Open, tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "logs", {"birds": [[b"rook"]]})
    (folder / "meta.properties").write_text(f"node.id={NODE}\nversion=1\n")

    with pytest.raises(ConfigError, match=r"has no cluster id; restore cluster\.id"):
        await start(log_dir=str(folder), read_only=True)


async def test_directory_is_limited_to_one_broker_process(tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "logs")

    with pytest.raises(ConfigError, match="omit --store"):
        make(log_dir=str(folder), store="memory:x")


async def test_damage_is_reported_with_the_name_of_its_file(start: Open, tmp_path: Path) -> None:
    folder = make_directory(tmp_path / "logs", {"birds": [[b"rook"]]})
    backing = await start(log_dir=str(folder), read_only=True)
    partition = backing.replica.state.topics.partition(topic_id(1), 0)
    assert partition is not None
    file = folder / "birds-0" / FIRST_LOG
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)

    with pytest.raises(Corrupt) as caught:
        await backing.reader.read((topic_id(1), 0), partition, 0, 1 << 20)

    assert caught.value.object_id == partition.row(0).object_id
    assert backing.reader.describe(caught.value) == f"{caught.value} (in {file})"
