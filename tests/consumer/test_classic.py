"""Classic groups: our members with other clients, and brokers without the newer protocol."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException

import rookery
from rookery.consumer.group.classicmember import ClassicGroupMember
from rookery.errors import ConfigError
from rookery.testing.java import TOOLS, Java
from rookery.testing.kafka import KafkaServer
from rookery.testing.kafkalogs import NOON, Logs, rows
from rookery.testing.process import LoggedProcess
from rookery.testing.properties import KafkaSettings
from rookery.testing.wait import wait_until
from tests.consumer.test_groups import committed, member, owned, until

WITHIN = 120.0
PARTITIONS = 4


class Foreigner(threading.Thread):
    """A member of another make, which reads and keeps its own count of what it owns."""

    def __init__(self, logs: Logs, topic: str, group: str, assignor: str) -> None:
        super().__init__(daemon=True)
        self.owned: set[int] = set()
        self.seen: list[tuple[int, int]] = []
        self._over = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": logs.bootstrap,
                "group.id": group,
                "partition.assignment.strategy": assignor,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": "false",
                "heartbeat.interval.ms": "500",
            }
        )
        self._consumer.subscribe([topic])
        self.start()

    def run(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(100, 0.1):
                assert message.error() is None, message.error()
                self.seen.append((message.partition() or 0, message.offset() or 0))
            with suppress(KafkaException):  # nothing to commit, or a rebalance: then the next time
                self._consumer.commit(asynchronous=False)
            self.owned = {place.partition for place in self._consumer.assignment()}
        self._consumer.close()

    def leave(self) -> None:
        self._over.set()
        self.join(WITHIN)


class JavaMember:
    """A member of Kafka's own make."""

    def __init__(self, logs: Logs, topic: str, group: str, log: Path) -> None:
        java = Java.find()
        assignor = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
        options = [
            *("--bootstrap-server", logs.bootstrap, "--topic", topic, "--group-id", group),
            *("--group-protocol", "classic", "--assignment-strategy", assignor),
            *("--reset-policy", "earliest", "--verbose"),
        ]
        self._log = log
        self._process = LoggedProcess(
            java.command(TOOLS["kafka-verifiable-consumer"], *options), log
        )

    @property
    def owned(self) -> set[int]:
        owned: set[int] = set()
        for event in self._events("partitions_revoked", "partitions_assigned"):
            named = {place["partition"] for place in event["partitions"]}
            is_given = event["name"] == "partitions_assigned"
            owned = owned | named if is_given else owned - named
        return owned

    @property
    def seen(self) -> list[tuple[int, int]]:
        return [(event["partition"], event["offset"]) for event in self._events("record_data")]

    def leave(self) -> None:
        assert self._process.stop(WITHIN) in {0, 143}, self._log.read_text()[-3000:]

    def _events(self, *names: str) -> list[dict[str, Any]]:
        assert self._process.ended() in {None, 0, 143}, self._log.read_text()[-3000:]
        lines = self._log.read_text().splitlines(keepends=True)
        whole = [line for line in lines if line.startswith("{") and line.endswith("\n")]
        return [event for line in whole if (event := json.loads(line))["name"] in names]


def filled(topics: Logs, stem: str) -> str:
    topic = topics.create(stem, PARTITIONS)
    for partition in range(PARTITIONS):
        topics.write(topic, partition, rows([NOON + n for n in range(10)]))
    return topic


def test_partitions_move_between_members(topics: Logs) -> None:
    topic = filled(topics, "classic")
    everything = set(range(PARTITIONS))

    with member(topics, topic, topic, group_protocol="classic") as first:
        seen = until([first], lambda: owned(first) == everything and first.is_live)
        with member(topics, topic, topic, group_protocol="classic") as second:
            seen += until([first, second], lambda: len(owned(first)) == len(owned(second)) == 2)
            assert owned(first) | owned(second) == everything
        seen += until([first], lambda: owned(first) == everything)

    assert sorted(seen) == [(p, o) for p in range(PARTITIONS) for o in range(10)]
    assert committed(topics, topic) == dict.fromkeys(range(PARTITIONS), 10)


@pytest.mark.parametrize("make", ["librdkafka", "Java"])
@pytest.mark.parametrize("leads", ["we", "they"])
def test_group_can_have_members_of_another_client(
    topics: Logs, tmp_path: Path, leads: str, make: str
) -> None:
    topic = filled(topics, f"mixed-{leads}")
    everything = set(range(PARTITIONS))

    def join() -> Foreigner | JavaMember:
        if make == "Java":
            return JavaMember(topics, topic, topic, tmp_path / "java.log")
        return Foreigner(topics, topic, topic, "cooperative-sticky")

    def half(ours: rookery.OrderedStream, other: Foreigner | JavaMember) -> bool:
        return len(owned(ours)) == 2 and owned(ours) | other.owned == everything

    other = join() if leads == "they" else None
    if other is not None:
        wait(lambda: other.owned == everything)
    with member(topics, topic, topic, group_protocol="classic") as ours:
        if other is None:
            until([], lambda: owned(ours) == everything)
            other = join()
        seen = until([ours], lambda: half(ours, other))
        for partition in range(PARTITIONS):
            topics.write(topic, partition, rows([NOON + 100]))
        seen += until([ours], lambda: set(committed(topics, topic).values()) == {11})
        other.leave()
        until([ours], lambda: owned(ours) == everything)

    rest = set(seen) | set(other.seen)
    assert rest == {(p, o) for p in range(PARTITIONS) for o in range(11)}


def wait(done: Any) -> None:
    until([], done)


def test_members_with_another_assignor_are_reported(topics: Logs) -> None:
    topic = filled(topics, "ranges")
    other = Foreigner(topics, topic, topic, "range")
    wait(lambda: len(other.owned) == PARTITIONS)

    try:
        with (
            member(topics, topic, topic, group_protocol="classic") as ours,
            pytest.raises(ConfigError, match="cooperative-sticky"),
        ):
            wait_until(lambda: ours.poll(1000), "an error", accepts=lambda _: False, seconds=WITHIN)
    finally:
        other.leave()


@pytest.mark.usefixtures("own_kafka")
def test_brokers_with_only_the_classic_protocol_are_supported() -> None:
    only = KafkaSettings(properties={"group.coordinator.rebalance.protocols": "classic"})
    with KafkaServer(only) as server, Logs(server.bootstrap) as logs:
        topic = filled(logs, "old")
        with member(logs, topic, "old") as stream:
            seen = until([stream], lambda: len(owned(stream)) == PARTITIONS and stream.is_live)
            is_classic = isinstance(stream._get().commits.member, ClassicGroupMember)

        assert is_classic
        assert len(seen) == 10 * PARTITIONS
        assert set(committed(logs, "old").values()) == {10}
