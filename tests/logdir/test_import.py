"""`rookery import`: the disk of a real Kafka into object storage, and clients see no difference."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rookery.cluster.state import producers
from rookery.cluster.state.partition import Partition
from rookery.cluster.state.state import State
from rookery.direct.log import DirectLog
from rookery.direct.place import ClusterAddress
from rookery.errors import ConfigError
from rookery.formats.kraft.image import BROKER, MetadataImage
from rookery.logdir.directory import LogDirectory
from rookery.logdir.importer.defaults import keeps_for, read_inherited
from rookery.model.partition import TopicPartition
from rookery.testing.backends import ServerBackend
from rookery.testing.broker import BrokerProcess
from rookery.testing.kafkadir import MadeDirectory
from rookery.testing.kafkasight import ClusterSight, look
from rookery.testing.wait import wait_until
from tests.cli.running import Done
from tests.cli.storage import run
from tests.logdir.conftest import Copy
from tests.logdir.test_reading import expected_by_time

# Nothing that is imported may be deleted while it is looked at: it is old.
KEPT = "log.retention.ms=-1\n"
QUIET_BROKER = ("--caretaker", "off")


@pytest.fixture(autouse=True)
def _without_other_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROOKERY_CONFIG", raising=False)


def imported(folder: Path, to: str | Path, *args: str) -> Done:
    return run("import", str(folder), "--to", str(to), "--quiet", "--json", *args)


def answer(done: Done) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr.decode()
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def state_of(place: ClusterAddress, look_at: Callable[[State], object] = lambda _: None) -> State:
    async def learn() -> State:
        async with DirectLog.open(place) as log:
            state = await log.barrier()
            look_at(state)
            return state

    return asyncio.run(learn())


def assert_same(sight: ClusterSight, seen: ClusterSight, *, ended: str = "tx-open") -> None:
    """Compare what clients of both saw; a transaction that was open is aborted since."""
    assert list(sight.topics) == list(seen.topics)
    for name, topic in seen.topics.items():
        ours = sight.topics[name]
        assert (name, ours.id) == (name, topic.id)
        assert (name, ours.configs) == (name, topic.configs)
        for number, partition in topic.partitions.items():
            place, other = f"{name}-{number}", ours.partitions[number]
            high = partition.high + (name == ended)
            assert (place, other.low, other.high) == (place, partition.low, high)
            assert other.records == partition.records
            assert (place, other.committed) == (place, partition.committed)
            if name != ended:
                assert (place, other.by_time) == (place, expected_by_time(partition))
    assert sight.groups == {name: offsets for name, offsets in seen.groups.items() if offsets}


def test_clients_see_the_same_as_in_kafka(made: MadeDirectory, tmp_path: Path) -> None:
    seen, folder = made.killed, tmp_path / "data"

    report = answer(imported(seen.folder, folder))

    logs = LogDirectory.open([seen.folder]).partitions
    assert report["topics"] == len(seen.topics)
    assert report["partitions"] == sum(len(topic.partitions) for topic in seen.topics.values())
    assert report["records"] == sum(
        len(part.records) + part.low - (logs[TopicPartition(name, number)].log_start)
        for name, topic in seen.topics.items()
        for number, part in topic.partitions.items()
    ) + cut_off(seen)
    assert list(report["ended_transactions"]) == ["tx-open-0"]
    assert report["skipped"] == report["left_out"] == report["already_there"] == []
    assert report["verified_batches"] > 0
    assert {"large", "odd"} <= set(report["too_old"])
    with BrokerProcess(folder, flags=QUIET_BROKER) as broker:
        assert_same(look(broker, folder, seen.cluster_id), seen)
    assert run("fsck", "--data", str(folder), "--quiet").returncode == 0


def cut_off(seen: ClusterSight) -> int:
    """Return how many records lie before the start of a log, in the batch that holds it."""
    total = 0
    for log in LogDirectory.open([seen.folder]).partitions.values():
        first = next(iter(log.batches()), None)
        if first is not None and not log.name.topic.startswith("__"):
            total += max(log.log_start - first.header.base_offset, 0)
    return total


def test_directory_is_imported_into_s3_and_etcd_twice(
    made: MadeDirectory, backend: ServerBackend, tmp_path: Path
) -> None:
    store, cluster = backend.store("kafkadir"), backend.cluster("kafkadir")
    properties = tmp_path / "server.properties"
    properties.write_text(KEPT)
    args = ("--cluster", cluster, "--properties", str(properties))

    first = answer(imported(made.stopped.folder, store, *args))
    again = answer(imported(made.stopped.folder, store, *args))

    assert first["too_old"] == []
    assert again["partitions"] == again["segments"] == again["offsets"] == 0
    assert len(again["already_there"]) == first["partitions"]
    assert again["verified_batches"] == first["verified_batches"] > 400
    state = state_of(ClusterAddress(store, cluster))
    assert state.cluster_id == made.stopped.cluster_id
    assert state.topics.by_name["large"].configs["retention.ms"] == "-1"
    assert "retention.ms" not in made.stopped.topics["large"].configs


def test_producers_epochs_and_transactional_ids_are_kept(
    made: MadeDirectory, tmp_path: Path
) -> None:
    answer(imported(made.stopped.folder, tmp_path / "data", "--no-verify"))

    state = state_of(ClusterAddress(data=str(tmp_path / "data")))
    directory = LogDirectory.open([made.stopped.folder])

    for name, log in directory.partitions.items():
        if name.topic.startswith("__"):
            continue
        partition = state.topics.by_name[name.topic].partitions[name.partition]
        known = log.replay()
        for entry in known.producers.values():
            window = producers.describe(partition.producers[entry.producer_id])
            assert (window.epoch, window.last_sequence) == (entry.epoch, entry.last_sequence)
        assert partition.ongoing == {}
        begun = [tuple(epoch) for epoch in log.epochs if epoch.start_offset <= log.high_watermark]
        assert partition.epochs[: len(begun)] == begun
        assert partition.leader_epoch >= (begun[-1][0] if begun else -1)
    assert state.next_producer_id >= directory.image.next_producer_id
    assert {"tx-one", "tx-two", "tx-a", "tx-b", "tx-left"} <= set(state.transactions.by_id)


def test_killed_import_continues(made: MadeDirectory, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    command = [sys.executable, "-m", "rookery.cli.main", "import", str(made.stopped.folder)]
    command += ["--to", str(folder), "--segment-bytes", "50000", "--quiet", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:

        def count() -> int:
            assert process.poll() is None, "it was over before it could be killed"
            return len(list(folder.rglob("*.kfs")))

        wait_until(count, "segments", accepts=lambda count: count >= 25, pause=0.005)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()

    report = answer(imported(made.stopped.folder, folder, "--segment-bytes", "50000"))

    assert report["already_there"]
    assert report["partitions"] > 0
    assert report["verified_batches"] > 400
    assert run("fsck", "--data", str(folder), "--quiet").returncode == 0
    state = state_of(ClusterAddress(data=str(folder)))
    for name, topic in made.stopped.topics.items():
        for number, partition in topic.partitions.items():
            there = state.topics.by_name[name].partitions[number]
            assert (there.log_start, there.next_offset) == (partition.low, partition.high)


def test_lost_cluster_log_is_recovered_after_an_import(made: MadeDirectory, tmp_path: Path) -> None:
    store, log = tmp_path / "objects", tmp_path / "cluster.sqlite"
    store.mkdir()
    where = ("--cluster", f"sqlite://{log}")
    answer(imported(made.stopped.folder, f"file://{store}", "--no-verify", *where))
    before = state_of(ClusterAddress(f"file://{store}", f"sqlite://{log}"))
    log.rename(tmp_path / "lost.sqlite")
    for path in tmp_path.glob("cluster.sqlite-*"):
        path.unlink()

    done = run("recover", "--store", f"file://{store}", *where, "--yes", "--quiet", "--json")

    assert json.loads(done.stdout)["lost"] == []
    after = state_of(ClusterAddress(f"file://{store}", f"sqlite://{log}"))
    for topic in before.topics:
        for partition in topic.partitions:
            if not partition.base_offsets:
                continue  # a topic without bytes leaves nothing in the store
            rebuilt = after.topics.by_id[topic.id].partitions[partition.index]
            assert rebuilt.next_offset == partition.next_offset
            assert list(rebuilt.objects) == list(partition.objects)
            in_log = {
                producer for producer in partition.producers if has_batches(partition, producer)
            }
            assert rebuilt.producers.keys() >= in_log
            assert list(rebuilt.aborted) == list(partition.aborted)


def has_batches(partition: Partition, producer_id: int) -> bool:
    """Whether some of a producer's batches are still in the log, as far as its window tells."""
    last = producers.describe(partition.producers[producer_id])
    verdict = producers.judge(partition.producers[producer_id], last.epoch, last.last_sequence, 1)
    return verdict.offset >= partition.log_start


def test_damage_stops_the_import_unless_it_is_skipped(made: MadeDirectory, copied: Copy) -> None:
    folder = copied(made.stopped)
    log = LogDirectory.open([folder]).partitions[TopicPartition("large", 0)]
    chosen = log.segments[1].check()[3]
    path = log.segments[1].path
    data = bytearray(path.read_bytes())
    data[chosen.position + 200] ^= 1
    path.write_bytes(data)
    to = folder.parent / "data"

    refused = imported(folder, to)
    report = answer(imported(folder, to, "--skip-damaged"))

    assert refused.returncode == 1
    place = f"{path}: byte {chosen.position}, offset {chosen.base_offset}: "
    assert place in refused.stderr.decode()
    assert "--skip-damaged" in refused.stderr.decode()
    assert [text.startswith(place) for text in report["skipped"]] == [True]
    partition = state_of(ClusterAddress(data=str(to))).topics.by_name["large"].partitions[0]
    saw = made.stopped.topics["large"].partitions[0]
    assert (partition.log_start, partition.next_offset) == (saw.low, saw.high)
    assert partition.cleaned_to > chosen.last_offset  # readers know of a gap
    assert run("fsck", "--data", str(to), "--quiet").returncode == 0


def test_only_selected_topics_are_imported(made: MadeDirectory, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    answer(imported(made.stopped.folder, folder, "--topic", "tx", "--topic", "odd"))

    assert set(state_of(ClusterAddress(data=str(folder))).topics.by_name) == {"tx", "odd"}
    done = imported(made.stopped.folder, folder, "--topic", "nowhere")
    assert done.returncode == 2
    assert "the directory has no such topic" in done.stderr.decode()


def test_different_topic_of_the_same_name_is_refused(made: MadeDirectory, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    answer(imported(made.stopped.folder, folder, "--topic", "odd"))
    other = tmp_path / "other"
    other.mkdir()
    (other / "meta.properties").write_text("node.id=1\nversion=1\ncluster.id=another\n")
    (other / "odd-0").mkdir()
    (other / "odd-0" / "partition.metadata").write_text("version: 0\ntopic_id: " + "A" * 21 + "Q")

    done = imported(other, folder)

    assert done.returncode == 2
    assert "the cluster has another topic of this name" in done.stderr.decode()


def test_topics_inherit_configs_from_their_broker() -> None:
    image = MetadataImage()
    image.configs[BROKER, ""] = {"log.retention.bytes": "5", "message.max.bytes": "7"}
    image.configs[BROKER, "3"] = {"message.max.bytes": "8"}
    properties = {"log.retention.hours": "2", "log.retention.bytes": "1", "log.cleanup.policy": "x"}

    assert read_inherited(image, 3, properties) == {
        "retention.ms": "7200000",
        "retention.bytes": "5",
        "max.message.bytes": "8",
        "cleanup.policy": "x",
    }
    assert read_inherited(MetadataImage(), None, {"log.retention.minutes": "-1"}) == {
        "retention.ms": "-1"
    }
    with pytest.raises(ConfigError, match="is not a number"):
        read_inherited(image, None, {"log.retention.hours": "many"})
    assert keeps_for({"cleanup.policy": "compact"}) == -1
    assert keeps_for({"retention.ms": "5"}) == 5
    assert keeps_for({}) == 7 * 86_400_000
