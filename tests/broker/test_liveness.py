"""Locks of node ids, and what they show about other brokers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from rookery.broker.process.liveness import has_ended, reach_broker
from rookery.broker.process.nodelock import NodeLock
from rookery.clock import SystemRandom
from rookery.cluster.state.brokers import Brokers, LiveBroker
from rookery.net.reach import Reach
from rookery.testing.ports import free_port


def lock(path: Path | None, boot_id: str = "boot") -> NodeLock:
    return NodeLock(path, boot_id, SystemRandom())


def test_node_id_has_one_holder_until_it_is_released(tmp_path: Path) -> None:
    first, second = lock(tmp_path / "lock"), lock(tmp_path / "lock")
    assert first.hold(1)
    assert second.is_held(1)
    assert not second.hold(1)
    assert second.hold(2)
    assert not first.is_held(1)  # its own
    first.close()
    assert not second.is_held(1)
    assert second.hold(1)
    third = lock(tmp_path / "lock")
    assert third.hold(2), "a process that takes another id releases its own"
    second.close()
    third.close()


@pytest.mark.parametrize("boot_id", ["boot", ""])
def test_the_last_holder_removes_a_temporary_file(tmp_path: Path, boot_id: str) -> None:
    path = tmp_path / "lock"
    first, second = lock(path, boot_id), lock(path, boot_id)
    first.hold(1)
    second.hold(2**31 - 1)
    first.close()
    assert path.exists()
    assert lock(path, boot_id).can_judge(second.new_process_id())
    second.close()
    assert path.exists() is not bool(boot_id)


def test_lock_judges_only_processes_of_the_same_file(tmp_path: Path) -> None:
    first, same = lock(tmp_path / "lock"), lock(tmp_path / "lock")
    assert same.can_judge(first.new_process_id())
    assert first.new_process_id() != first.new_process_id()
    for other in (
        lock(tmp_path / "other"),
        lock(tmp_path / "lock", "another start of the host"),
        lock(None),
        lock(tmp_path / "no" / "folder"),
    ):
        assert not other.can_judge(first.new_process_id())
        assert not first.can_judge(other.new_process_id())
        other.close()
    (tmp_path / "lock").unlink(missing_ok=True)
    again = lock(tmp_path / "lock")
    assert not again.can_judge(first.new_process_id()), "a deleted file proves nothing"
    for opened in (first, same, again):
        opened.close()


async def test_broker_on_this_host_is_judged_by_its_lock(tmp_path: Path) -> None:
    own, others = lock(tmp_path / "lock"), lock(tmp_path / "lock")
    others.hold(7)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        broker = LiveBroker(7, 1, "127.0.0.1", port, None, others.new_process_id())
        assert await reach_broker(own, broker) is Reach.OPEN
        others.close()
        assert await reach_broker(own, broker) is Reach.REFUSED
    own.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
async def test_loopback_address_of_another_host_is_inconclusive(tmp_path: Path, host: str) -> None:
    own = lock(tmp_path / "lock")
    broker = LiveBroker(7, 1, host, free_port(), None, bytes(16))
    assert await reach_broker(own, broker) is Reach.UNKNOWN
    own.close()


def test_only_the_lock_proves_that_a_process_has_ended(tmp_path: Path) -> None:
    own, others = lock(tmp_path / "lock"), lock(tmp_path / "lock")
    others.hold(7)
    brokers = Brokers()
    ended = LiveBroker(7, 1, "h", 1, None, others.new_process_id())
    remote = LiveBroker(8, 2, "h", 1, None, bytes(16))
    assert not has_ended(own, ended, brokers)
    # Another process of this host has the node id since.
    brokers.by_node[7] = ended._replace(incarnation=3, process_id=others.new_process_id())
    assert has_ended(own, ended, brokers)
    brokers.by_node[7] = ended._replace(incarnation=3, process_id=bytes(16))
    assert not has_ended(own, ended, brokers)
    others.close()
    assert has_ended(own, ended, brokers)
    assert not has_ended(own, remote, brokers), "the lock says nothing about other hosts"
    own.close()
