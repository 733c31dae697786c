"""Groups of librdkafka's consumers that change their protocol one by one while records flow."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.broker.groups.settings import ConsumerSettings
from rookery.errors import ErrorCode
from rookery.testing.broker import BrokerProcess, wait_gone
from rookery.testing.servedbroker import ask
from rookery.wire.messages.find_coordinator import (
    FIND_COORDINATOR,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest
from rookery.wire.messages.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from rookery.wire.messages.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from tests.broker.conftest import Start
from tests.broker.raw import create
from tests.broker.test_consumer_groups import (
    GROUP,
    SECONDS,
    Reader,
    describe,
    poll_until,
    produce,
    reading,
)

PARTITIONS = 6
CLASSIC = {"group.protocol": "classic", "heartbeat.interval.ms": 300, "session.timeout.ms": 45_000}
CONSUMER: dict[str, Any] = {"group.protocol": "consumer"}
OFTEN = {"enable.auto.commit": True, "auto.commit.interval.ms": 200}
QUICK = ConsumerSettings(heartbeat_interval_ms=300, waiting_interval_ms=100)
assignors = pytest.mark.parametrize("assignor", ["range,roundrobin", "cooperative-sticky"])


class Flow:
    """Numbers that flow into a topic, round and round its partitions, until told to stop."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        self._is_over = threading.Event()
        self.count = 0

    def run(self) -> None:
        while not self._is_over.wait(0.005):
            self._producer.produce("t", b"%d" % self.count, partition=self.count % PARTITIONS)
            self._producer.poll(0)
            self.count += 1

    def stop(self) -> None:
        self._is_over.set()
        assert self._producer.flush(SECONDS) == 0


@contextmanager
def flowing(bootstrap: str) -> Iterator[Flow]:
    """Produce in the background of a block."""
    flow = Flow(bootstrap)
    thread = threading.Thread(target=flow.run)
    thread.start()
    try:
        yield flow
    finally:
        flow.stop()
        thread.join()


class Watch:
    """Looks at what the group has committed: that never goes back."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.offsets: dict[int, int] = {}

    def look(self) -> None:
        """Ask for the offsets and compare them with those before."""
        asked = OffsetFetchRequestGroup(group_id=GROUP, topics=None)
        answer = ask(self._bootstrap, OFFSET_FETCH, 8, OffsetFetchRequest(groups=[asked]))
        for topic in answer.groups[0].topics:
            for part in topic.partitions:
                before = self.offsets.get(part.partition_index, 0)
                assert part.committed_offset >= before, "a committed offset went back"
                self.offsets[part.partition_index] = part.committed_offset


def kind_of(bootstrap: str) -> str:
    """Return which protocol the group speaks."""
    [group] = ask(bootstrap, LIST_GROUPS, 5, ListGroupsRequest(states_filter=[])).groups
    return group.group_type


def coordinator(bootstrap: str) -> FindCoordinatorResponse:
    return ask(bootstrap, FIND_COORDINATOR, 3, FindCoordinatorRequest(key=GROUP))


def is_described(bootstrap: str) -> bool:
    """Whether the group has a coordinator that lives; the dead one is named for some time."""
    try:
        return describe(bootstrap).error_code is ErrorCode.NONE
    except OSError:
        return False


def member_types(bootstrap: str) -> list[int]:
    return sorted(member.member_type for member in describe(bootstrap).members)


def is_shared(watch: Watch, readers: list[Reader]) -> bool:
    """Whether every partition is read by exactly one, and all read as many."""
    watch.look()
    owned = [partition for reader in readers for partition in reader.owned]
    is_even = {len(reader.owned) for reader in readers} == {PARTITIONS // len(readers)}
    return is_even and sorted(owned) == list(range(PARTITIONS))


def close(readers: list[Reader]) -> None:
    for reader in readers:
        reader.consumer.close()


@pytest.mark.usefixtures("own_processes")
@assignors
def test_members_migrate_one_by_one_and_back_under_load(start: Start, assignor: str) -> None:
    broker = start(consumer_groups=QUICK)
    bootstrap = broker.bootstrap
    create(broker, "t", PARTITIONS)
    classic = CLASSIC | OFTEN | {"partition.assignment.strategy": assignor}
    consumer = CONSUMER | OFTEN
    watch, kinds, done = Watch(bootstrap), [], list[Reader]()
    with ExitStack() as stack, flowing(bootstrap) as flow:
        readers = [Reader(bootstrap, ["t"], **classic) for _ in range(3)]
        stack.callback(close, readers)
        poll_until(lambda: is_shared(watch, readers), *readers)
        kinds.append(kind_of(bootstrap))
        for settings in (consumer, classic):
            for at in range(3):
                done.append(readers[at])
                readers[at].consumer.close()
                readers[at] = Reader(bootstrap, ["t"], **settings)

                poll_until(lambda: is_shared(watch, readers), *readers)

                kinds.append(kind_of(bootstrap))
                size = flow.count
                poll_until(lambda size=size: flow.count > size + 100, *readers)  # type: ignore[misc] # bound at once
        flow.stop()
        seen = [*done, *readers]
        poll_until(
            lambda: len({n for reader in seen for n in reader.values}) >= flow.count, *readers
        )
        watch.look()

    values = [number for reader in seen for number in reader.values]
    assert set(values) == set(range(flow.count)), "a record was skipped"
    assert kinds == ["classic", *["consumer"] * 5, "classic"]


def test_members_of_both_protocols_commit_in_one_group(start: Start) -> None:
    broker = start(consumer_groups=QUICK)
    create(broker, "t", 2)
    produce(broker.bootstrap, "t", range(20), 2)
    with reading(broker.bootstrap, "t", **CLASSIC) as old, reading(broker.bootstrap, "t") as new:
        poll_until(lambda: len(old.owned) == len(new.owned) == 1, old, new)
        produce(broker.bootstrap, "t", range(20, 40), 2)
        poll_until(lambda: len({*old.values, *new.values}) == 40, old, new)
        old.consumer.commit(asynchronous=False)
        new.consumer.commit(asynchronous=False)
        watch = Watch(broker.bootstrap)
        watch.look()
        assert watch.offsets == {0: 20, 1: 20}
        described = describe(broker.bootstrap)
        assert described.error_code is ErrorCode.NONE
        assert described.group_state == "Stable"
        assert member_types(broker.bootstrap) == [0, 1]
        assert kind_of(broker.bootstrap) == "consumer"


@pytest.mark.usefixtures("own_victim")
def test_a_mixed_group_survives_the_kill_of_its_coordinator(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", workers=3, flags=["--durability", "os"]) as broker:
        pids = {row["node_id"]: row["pid"] for row in broker.ready["brokers"]}
        bootstrap = broker.bootstrap
        _create(bootstrap, 4)
        with reading(bootstrap, "t", **CLASSIC) as old, reading(bootstrap, "t") as new:
            poll_until(lambda: len(old.owned) == len(new.owned) == 2, old, new)
            produce(bootstrap, "t", range(20), 4)
            poll_until(lambda: len({*old.values, *new.values}) == 20, old, new)
            before, owned = describe(bootstrap), (old.owned, new.owned)
            lost = (list(old.lost), list(new.lost))
            dead = coordinator(bootstrap).node_id

            os.kill(pids[dead], signal.SIGKILL)
            wait_gone(pids[dead])
            produce(bootstrap, "t", range(20, 40), 4)

            poll_until(lambda: len({*old.values, *new.values}) == 40, old, new)
            poll_until(lambda: is_described(bootstrap), old, new)
            after = describe(bootstrap)
            assert after.group_epoch == before.group_epoch
            assert member_types(bootstrap) == [0, 1]
            assert (old.owned, new.owned) == owned
            assert (old.lost, new.lost) == lost


def test_members_must_send_their_current_epoch(start: Start) -> None:
    broker = start(consumer_groups=QUICK)
    create(broker, "t", 2)
    with reading(broker.bootstrap, "t", **CLASSIC) as old, reading(broker.bootstrap, "t") as new:
        poll_until(lambda: len(old.owned) == len(new.owned) == 1, old, new)
        members = describe(broker.bootstrap).members
        [(classic, at)] = [(m.member_id, m.member_epoch) for m in members if m.member_type == 0]
        [consumer] = [m.member_id for m in members if m.member_type == 1]
        unsupported, unknown = ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNKNOWN_MEMBER_ID
        illegal, stale = ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH
        for member_id, epoch, older, newer in (
            (classic, at, ErrorCode.NONE, ErrorCode.NONE),
            (classic, at + 1, illegal, illegal),
            (consumer, at, unsupported, ErrorCode.NONE),
            (consumer, at + 1, unsupported, stale),
            ("nobody", at, unknown, unknown),
        ):
            assert commit(broker.bootstrap, 8, member_id, epoch) is older
            assert commit(broker.bootstrap, 9, member_id, epoch) is newer
            assert fetch(broker.bootstrap, member_id, epoch) is newer
        assert fetch(broker.bootstrap, None, -1) is ErrorCode.NONE


def commit(bootstrap: str, version: int, member_id: str, epoch: int) -> ErrorCode:
    part = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[part])],
    )
    answer = ask(bootstrap, OFFSET_COMMIT, version, request)
    return answer.topics[0].partitions[0].error_code


def fetch(bootstrap: str, member_id: str | None, epoch: int) -> ErrorCode:
    asked = OffsetFetchRequestGroup(
        group_id=GROUP, member_id=member_id, member_epoch=epoch, topics=None
    )
    request = OffsetFetchRequest(groups=[asked])
    return ask(bootstrap, OFFSET_FETCH, 9, request).groups[0].error_code


def _create(bootstrap: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("t", partitions, 1)])["t"].result(SECONDS)
