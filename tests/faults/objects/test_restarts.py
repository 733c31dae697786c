"""Brokers are restarted in order, one after the other: no client notices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from rookery.service.process import OK
from rookery.testing.backends import ETCD, STORE
from rookery.testing.wait import wait_until
from tests.crash.hosts import wait_until_clean
from tests.crash.killing import PARTITIONS, TOPIC, create_topic
from tests.crash.load import Load, verify
from tests.faults.objects.scene import Scene

SEED = 25
GROUP = "readers"


class GroupReader:
    """A member of a group, which reads and commits in the background."""

    def __init__(self, bootstrap: str, protocol: str) -> None:
        self.offsets: dict[int, list[int]] = {}
        self.revoked: list[TopicPartition] = []
        self.committed: dict[int, int] = {}
        self._stopping = Event()
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
        self._consumer = Consumer(settings)
        self._thread = Thread(target=self._work, daemon=True)

    def start(self) -> None:
        self._consumer.subscribe([TOPIC], on_revoke=self._revoke, on_lost=self._revoke)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def read_all_of(self, load: Load) -> bool:
        """Return whether each acknowledged record has been read."""
        return all(
            set(numbers.values()) <= set(self.offsets.get(partition, ()))
            for partition, numbers in enumerate(load.acked())
        )

    def _work(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(500, 0.2):
                if message.error() is None:
                    read = self.offsets.setdefault(message.partition() or 0, [])
                    read.append(message.offset() or 0)
            self._commit()
        revoked = list(self.revoked)
        self._consumer.close()
        self.revoked = revoked  # the end of the test does not count

    def _commit(self) -> None:
        ends = {partition: read[-1] + 1 for partition, read in self.offsets.items()}
        if ends in ({}, self.committed):
            return
        # librdkafka does not repeat every commit that a stopping coordinator refuses.
        with suppress(KafkaException):
            places = [TopicPartition(TOPIC, partition, end) for partition, end in ends.items()]
            self._consumer.commit(offsets=places, asynchronous=False)
            self.committed = ends

    def _revoke(self, _: Any, places: list[TopicPartition]) -> None:
        self.revoked += places


@contextmanager
def reading(bootstrap: str, protocol: str) -> Iterator[GroupReader]:
    reader = GroupReader(bootstrap, protocol)
    reader.start()
    try:
        yield reader
    finally:
        reader.stop()


@pytest.mark.parametrize("kind", [ETCD, STORE])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_restart_of_each_broker_goes_unnoticed(scene: Scene, protocol: str) -> None:
    # A busy host can take longer to stop in order than the default permits.
    hosts = scene.hosts(3, "--drain-timeout-ms", "30000")
    create_topic(hosts.bootstrap)
    with (
        Load(hosts.bootstrap, TOPIC, PARTITIONS, SEED) as load,
        reading(hosts.bootstrap, protocol) as reader,
    ):
        wait_until(lambda: len(reader.offsets) == PARTITIONS)
        for host in hosts:
            load.wait_for(20)
            assert host.stop() == OK
            load.wait_for(20)
            host.start()
        load.wait_for(20)
        load.finish()
        wait_until(lambda: reader.read_all_of(load))
        ends = {partition: len(acked) for partition, acked in enumerate(load.acked())}
        wait_until(lambda: reader.committed, accepts=ends.__eq__)
    # The member kept its partitions while its group had other coordinators.
    assert reader.revoked == []
    for read in reader.offsets.values():
        assert read == list(range(len(read)))
    assert "is expired after" not in hosts.words(1_000_000)
    verify(hosts.bootstrap, load)
    wait_until_clean(hosts)
