"""`rookery recover`, with real brokers before and after the loss."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from rookery.testing.etcd import EtcdCluster
from rookery.testing.wait import wait_until
from tests.cli.storage import Broker, run


@pytest.fixture(autouse=True)
def _without_other_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROOKERY_CONFIG", raising=False)


def in_store(tmp_path: Path, *flags: str, cluster: str = "") -> Broker:
    store = tmp_path / "objects"
    store.mkdir(exist_ok=True)
    where = ["--store", f"file://{store}"]
    if cluster:
        where += ["--cluster", cluster]
    return Broker(tmp_path / "data", [*where, "--inline-bytes", "0", *flags], where)


def test_deleted_log_in_the_store_is_recovered(tmp_path: Path) -> None:
    broker = in_store(tmp_path, "--snapshot-entries", "5", "--rewrite-merge-age-ms", "1")
    with broker.process:
        broker.rookery("topics", "create", "birds", "--config", "retention.ms=-1")
        for _ in range(6):
            broker.produce("birds", 20)
        before = broker.consume("birds")
        assert sorted(before) == list(range(120))
        assert broker.process.stop() == 0
        shutil.rmtree(tmp_path / "objects/_rookery/default/log")
        assert broker.fsck()[0] == 1

        code, said = broker.recover("--dry-run")
        assert (code, said["written"], said["lost"], said["unplaced"]) == (0, False, [], [])
        code, said = broker.recover("--yes")
        assert (code, said["written"], said["lost"], said["unplaced"]) == (0, True, [], [])
        assert broker.fsck()[0] == 0

        broker.process.start()
        assert broker.consume("birds") == before
        values = broker.produce("birds", 5)
        assert broker.consume("birds") == before | dict(enumerate(values, 120))
        assert broker.process.stop() == 0
        code, report = broker.fsck()
        assert code == 0, report["faults"]
        # The log has entries again.
        assert run("recover", *broker.where, "--yes").returncode == 1


@pytest.mark.parametrize("is_appended", [True, False])
def test_the_last_object_of_a_killed_broker_is_named(tmp_path: Path, is_appended: bool) -> None:
    broker = in_store(tmp_path, "--caretaker", "off", "--upkeep-interval-ms", "3600000")
    with broker.process:
        broker.produce("birds", 20)
        first = broker.consume("birds")
        broker.produce("birds", 7)
        before = broker.consume("birds")
        broker.process.kill()
        shutil.rmtree(tmp_path / "objects/_rookery/default/log")

        code, said = broker.recover("--yes", *(["--append-unplaced"] if is_appended else []))

        assert code == (0 if is_appended else 1)
        [unplaced] = said["unplaced"]
        assert unplaced["records"] == 7
        assert unplaced["parts"] == [{"topic": "birds", "partition": 0, "records": 7}]
        assert said["topics_without_configs"] == ["birds"]
        broker.process.start()
        assert broker.consume("birds") == (before if is_appended else first)
        kept = list((tmp_path / "objects/_rookery/default").glob("unplaced/*/*"))
        assert len(kept) == (0 if is_appended else 1)


def test_wiped_etcd_log_is_recovered(tmp_path: Path, etcd: EtcdCluster) -> None:
    broker = in_store(tmp_path, "--snapshot-entries", "5", cluster=etcd.url("wiped"))
    with broker.process:
        for _ in range(3):
            broker.produce("birds", 30)
        before = broker.consume("birds")
        assert broker.process.stop() == 0
        # Another name is another log: as empty as etcd would be.
        again = in_store(tmp_path, cluster=etcd.url("fresh"))
        code, said = again.recover("--yes")
        assert (code, said["lost"], said["unplaced"]) == (0, [], [])
        assert again.fsck()[0] == 0
    with again.process:
        assert again.consume("birds") == before
        again.produce("birds", 3)
        assert len(again.consume("birds")) == 93


def is_snapped(broker: Broker, snapshots: Path, known: set[Path]) -> bool:
    """Write a little, and see whether there is a snapshot that was not known."""
    broker.produce("birds", 1)
    return not known.issuperset(snapshots.glob("*"))


def test_folder_without_its_cluster_log_is_recovered_as_far_as_possible(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    flags = ["--snapshot-entries", "3", "--rewrite-merge-age-ms", "1", "--inline-bytes", "0"]
    broker = Broker(folder, flags, ["--data", str(folder)])
    with broker.process:
        broker.produce("birds", 20, size=500)
        snapshots = folder / "store/_rookery/default/snapshots"
        # The next one may have been begun before these records came; the second knows of them.
        for _ in range(2):
            wait_until(partial(is_snapped, broker, snapshots, set(snapshots.glob("*"))))
        for _ in range(3):
            broker.produce("birds", 20, size=500)
        before = broker.consume("birds")
        assert broker.process.stop() == 0
        for path in folder.glob("cluster.sqlite*"):
            path.unlink() if path.is_file() else shutil.rmtree(path)
        assert run("fsck", "--data", str(folder)).returncode == 2

        _, said = broker.recover("--yes")

        # Records that are only in journal files and came after the snapshot are unknown.
        lost = {
            offset
            for extent in said["lost"]
            for offset in range(extent["base_offset"], extent["end_offset"])
        }
        assert said["topics"] == 1
        broker.process.start()
        after = broker.consume("birds")
        assert after
        assert after == {k: v for k, v in before.items() if k in after}
        assert not lost & set(after)
        missing = set(before) - set(after)
        assert not missing or said["journals"] or lost


def test_recover_requires_confirmation(tmp_path: Path) -> None:
    done = run("recover", "--store", f"file://{tmp_path}")
    assert done.returncode == 2
    assert "stop all brokers first" in done.stderr.decode()


def test_recover_prints_a_readable_report(tmp_path: Path) -> None:
    broker = in_store(tmp_path, "--caretaker", "off", "--upkeep-interval-ms", "3600000")
    with broker.process:
        broker.produce("birds", 4)
        broker.process.kill()
    shutil.rmtree(tmp_path / "objects/_rookery/default/log")
    done = run("recover", *broker.where, "--dry-run")
    text = done.stdout.decode()
    assert done.returncode == 1
    assert "there is no snapshot" in text
    assert "4 records without offsets (birds-0: 4)" in text
    assert "nothing was written" in text
    assert not (tmp_path / "objects/_rookery/default/snapshots").exists()
