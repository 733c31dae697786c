"""Compaction and merges during writes and kills: nothing is lost, repeated or moved."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rookery import jobs
from rookery.client.admin import NewTopic
from rookery.client.client import Client
from rookery.direct.place import ClusterAddress
from rookery.log.settings import RewriteSettings
from rookery.records.recordcodec import Record
from rookery.testing.brokers import Host
from tests.direct.sinking import rows
from tests.jobs.killing import kill_after_progress, run_job
from tests.jobs.world import check_clean, contents, create, fill, last_by_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PARTITIONS = 2
_KEYS = 200
# The broker's own caretaker is off: what is done to the log is done by the jobs.
_ALONE = ("--caretaker", "off")
_WITH_CARETAKER = ("--upkeep-interval-ms", "20")


class _Producing:
    """Writes until it must stop, and remembers the offset of each record."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._stop = threading.Event()
        self.stored: dict[tuple[int, int], tuple[bytes, bytes]] = {}
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    async def _run(self) -> None:
        number = 0
        async with Client(self._bootstrap) as client, client.producer() as producer:
            while not self._stop.is_set():
                sent = []
                for _ in range(200):
                    record = Record(b"key %d" % (number % _KEYS), b"value %d " % number * 5)
                    sent.append((record, await producer.send(self._topic, record)))
                    number += 1
                await producer.flush()
                for record, delivery in sent:
                    done = await delivery.wait()
                    place = done.partition, done.offset
                    self.stored[place] = record.key or b"", record.value or b""

    def start(self) -> None:
        self._thread.start()

    def wait_for(self, records: int) -> None:
        """Wait until a given number are stored."""
        pause = threading.Event()
        while len(self.stored) < records and self._thread.is_alive():
            pause.wait(0.05)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


@contextmanager
def _cluster(
    tmp_path: Path, topic: str, flags: tuple[str, ...] = _ALONE, **configs: str
) -> Iterator[tuple[Host, ClusterAddress]]:
    store = tmp_path / "store"
    store.mkdir()
    with Host(tmp_path / "host", store=f"file://{store}", flags=flags) as host:
        asyncio.run(_create(host.bootstrap, topic, configs))
        yield host, ClusterAddress(store=f"file://{store}")


async def _create(bootstrap: str, topic: str, configs: dict[str, str]) -> None:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    async with Client(bootstrap) as client:
        new = NewTopic(name=topic, partitions=_PARTITIONS, configs=named)
        await client.admin.create_topics([new])


def test_compact_runs_while_producers_write(spark: SparkSession, tmp_path: Path) -> None:
    with _cluster(tmp_path, "t", cleanup_policy="compact") as (host, place):
        producing = _Producing(host.bootstrap, "t")
        producing.start()
        try:
            for _ in range(3):
                producing.wait_for(len(producing.stored) + 2_000)
                report = jobs.compact(spark, place, ["t"])
                assert report.is_right, report.problems
                assert report.facts["replaced_bytes"]
        finally:
            producing.stop()
        final = jobs.compact(spark, place, ["t"])
        assert final.is_right, final.problems

        records = contents(place, "t")
        expected: dict[bytes, tuple[int, int, bytes]] = {}
        for (partition, offset), (key, value) in sorted(producing.stored.items()):
            expected[key] = partition, offset, value
        assert last_by_key(records) == expected
        assert len(records) < len(producing.stored) // 4
        stored = {(*at, *what) for at, what in producing.stored.items()}
        assert set(records) <= stored
        host.stop()
        check_clean(place)


def test_jobs_run_while_producers_and_a_caretaker_work(spark: SparkSession, tmp_path: Path) -> None:
    configs = {
        "cleanup_policy": "compact", "max_compaction_lag_ms": "1",
        "min_cleanable_dirty_ratio": "0.0",
    }  # fmt: skip
    with _cluster(tmp_path, "t", _WITH_CARETAKER, **configs) as (host, place):
        producing = _Producing(host.bootstrap, "t")
        producing.start()
        try:
            for _ in range(4):
                producing.wait_for(len(producing.stored) + 1_000)
                for report in (jobs.compact(spark, place), jobs.merge(spark, place)):
                    assert report.is_right, report.problems
        finally:
            producing.stop()

        expected: dict[bytes, tuple[int, int, bytes]] = {}
        for (partition, offset), (key, value) in sorted(producing.stored.items()):
            expected[key] = partition, offset, value
        host.stop()
        assert last_by_key(contents(place, "t")) == expected
        check_clean(place)


def test_merge_runs_while_producers_write(spark: SparkSession, tmp_path: Path) -> None:
    settings = RewriteSettings(
        merge_bytes=200_000, segment_bytes=300_000, segment_min_bytes=50_000, row_bytes=50_000
    )
    with _cluster(tmp_path, "t") as (host, place):
        producing = _Producing(host.bootstrap, "t")
        producing.start()
        try:
            for _ in range(3):
                producing.wait_for(len(producing.stored) + 2_000)
                report = jobs.merge(spark, place, settings=settings)
                assert report.is_right, report.problems
                assert report.facts["rewritten_bytes"]
        finally:
            producing.stop()

        stored = sorted((*at, *what) for at, what in producing.stored.items())
        assert contents(place, "t") == stored
        host.stop()
        check_clean(place)


@pytest.mark.usefixtures("own_victim")
def test_killed_compaction_continues(place: ClusterAddress) -> None:
    create(place, "t", 12, cleanup_policy="compact")
    fill(place, "t", [rows(6_000, start) for start in range(0, 24_000, 6_000)])
    before = contents(place, "t")
    command = ["compact", "t", "--master", "local[1]", "--store", place.store]

    kill_after_progress(command, 1)
    middle = contents(place, "t")
    report = run_job(command)

    after = contents(place, "t")
    assert report["ok"]
    assert report["before"] == report["after"]
    assert len(before) > len(middle) > len(after) == 100
    assert last_by_key(before) == last_by_key(middle) == last_by_key(after)
    check_clean(place)
