"""EIO on write and on sync, of the journal and of the cluster log, under load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.errors import ErrorCode
from rookery.testing.wait import wait_until
from tests.crash.killing import PARTITIONS, TOPIC, create_topic
from tests.crash.load import Load, check, read_all
from tests.faults.preload import FailingBroker, compiled
from tests.faults.probe import LARGE, fetch, problems, produce

# The problem that the broker reports, for each of the calls that fail.
FAULTS = {
    "write-journal": "disk",
    "sync-journal": "disk",
    "write-cluster": "cluster log",
    "sync-cluster": "cluster log",
}
PROBE = "probe"
NOTHING: list[list[int]] = [[] for _ in range(PARTITIONS)]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def broker(shim: Path, tmp_path: Path) -> Iterator[FailingBroker]:
    with FailingBroker(tmp_path / "data", shim) as process:
        create_topic(process.bootstrap)
        create_topic(process.bootstrap, PROBE)
        yield process


@pytest.mark.parametrize("fault", FAULTS)
def test_disk_error_loses_no_acknowledged_record(broker: FailingBroker, fault: str) -> None:
    with Load(broker.bootstrap, TOPIC, PARTITIONS, seed=2) as load:
        load.wait_for(20)
        with broker.failing(fault):
            wait_until(lambda: FAULTS[fault] in problems(broker), "it reports its disk")
            acked = load.acked()
            check(NOTHING, read_all(broker.bootstrap, TOPIC, PARTITIONS), acked)
        load.wait_for(20)
        wait_until(lambda: not problems(broker), "it is ready again")
        # Killed, not stopped: what the disk has must be all that is needed.
        before = load.acked()
        broker.kill()
        broker.start()
        check(NOTHING, read_all(broker.bootstrap, TOPIC, PARTITIONS), before)
    check(NOTHING, read_all(broker.bootstrap, TOPIC, PARTITIONS), load.acked())


@pytest.mark.parametrize("fault", FAULTS)
def test_broker_killed_during_disk_errors_loses_nothing(broker: FailingBroker, fault: str) -> None:
    with Load(broker.bootstrap, TOPIC, PARTITIONS, seed=3) as load:
        load.wait_for(20)
        with broker.failing(fault):
            wait_until(lambda: FAULTS[fault] in problems(broker), "it reports its disk")
            broker.kill()
        acked = load.acked()
        broker.start()
        check(NOTHING, read_all(broker.bootstrap, TOPIC, PARTITIONS), acked)
    check(NOTHING, read_all(broker.bootstrap, TOPIC, PARTITIONS), load.acked())


@pytest.mark.parametrize("fault", ["write-journal", "sync-journal"])
def test_refused_records_are_not_stored(broker: FailingBroker, fault: str) -> None:
    first = produce(broker.port, PROBE, bytes(LARGE))
    with broker.failing(fault):
        refused = produce(broker.port, PROBE, bytes(LARGE))
        # Small ones need no journal.
        small = produce(broker.port, PROBE, b"small")
    wait_until(lambda: not produce(broker.port, PROBE, bytes(LARGE)).error_code, "it writes again")

    assert refused.error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "check the disk" in (refused.error_message or "")
    assert (first.base_offset, small.base_offset) == (0, 1)
    assert fetch(broker.port, PROBE, 0).high_watermark == 3


@pytest.mark.parametrize("fault", ["sync-journal", "sync-cluster"])
def test_broker_that_cannot_write_still_stops(broker: FailingBroker, fault: str) -> None:
    kept = produce(broker.port, PROBE, bytes(LARGE))
    with broker.failing(fault):
        status = broker.stop()
    assert status in {0, 1}
    if status:
        assert "could not" in broker.words()

    broker.start()
    assert kept.base_offset == 0
    assert fetch(broker.port, PROBE, 0).high_watermark == 1
