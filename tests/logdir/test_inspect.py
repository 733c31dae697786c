"""`rookery inspect` on what a real Kafka left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rookery.testing.kafkadir import MadeDirectory
from rookery.testing.kafkasight import ClusterSight
from tests.cli.storage import run


def test_inspect_reports_what_clients_saw(seen: ClusterSight) -> None:
    done = run("inspect", str(seen.folder), "--json", "--quiet")

    said: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == 0
    assert (said["cluster_id"], said["node_id"]) == (seen.cluster_id, 1)
    assert said["damage"] == said["damaged_records"] == said["metadata_records_skipped"] == []
    assert [topic["name"] for topic in said["topics"]] == list(seen.topics)
    for topic in said["topics"]:
        known = seen.topics[topic["name"]]
        assert (topic["id"], topic["configs"]) == (known.id, known.configs)
        for partition in topic["partitions"]:
            saw = known.partitions[partition["partition"]]
            assert (partition["log_start"], partition["high_watermark"]) == (saw.low, saw.high)
            assert partition["records"] == len(saw.records)
            if saw.records:
                assert partition["last_timestamp"] == max(
                    record.timestamp for record in saw.records
                )
    groups = {group["name"]: len(group["offsets"]) for group in said["groups"] if group["offsets"]}
    assert groups == {name: len(offsets) for name, offsets in seen.groups.items() if offsets}


def test_table_has_a_line_for_each_partition(made: MadeDirectory) -> None:
    done = run("inspect", str(made.killed.folder), "--quiet")

    lines = done.stdout.decode().splitlines()
    assert f"node 1 of cluster {made.killed.cluster_id}" in lines
    assert "Kafka was shut down not in order: what was written last may be torn" in lines
    assert "nothing is damaged" in lines
    assert "tx-open-0: transactions are open from 3" in lines
    large = made.killed.topics["large"].partitions[0]
    [line] = [text for text in lines if text.startswith(" large-0 ")]
    assert line.split()[1:4] == ["0", f"{large.high:,}", f"{len(large.records):,}"]
    assert any(text.startswith("left over: gone-1-0.") for text in lines)
    assert "__consumer_offsets-0" not in done.stdout.decode()
    internal = run("inspect", str(made.killed.folder), "--quiet", "--internal", "--quick")
    assert " __consumer_offsets-0 " in internal.stdout.decode()


def test_other_folders_are_refused(tmp_path: Path) -> None:
    done = run("inspect", str(tmp_path))
    assert done.returncode == 2
    assert "not a log directory of Kafka" in done.stderr.decode()
    assert run("inspect", str(tmp_path / "nowhere")).returncode == 2


def test_directories_of_two_brokers_are_refused(made: MadeDirectory, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "meta.properties").write_text("node.id=2\nversion=1\ncluster.id=another\n")

    done = run("inspect", str(made.stopped.folder), str(other))

    assert done.returncode == 2
    assert "open the directories of one broker at a time" in done.stderr.decode()
