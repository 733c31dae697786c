"""Several processes as one broker: ports, node ids, restarts, and a common end."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from rookery.broker.process.workers import worker_settings
from rookery.broker.settings import BrokerSettings
from rookery.errors import ConfigError
from rookery.model.address import Address
from rookery.service.listen.listenersettings import ListenerConfig
from rookery.testing.broker import BrokerProcess, is_alive
from rookery.testing.probe import brokers_seen, is_open
from rookery.testing.wait import PATIENCE_SECONDS, wait_until
from tests.crash.killing import PARTITIONS, TOPIC, create_topic
from tests.crash.load import Load, check, read_all

BOOTSTRAP = {"PLAINTEXT": Address("127.0.0.1", 9092)}


@pytest.fixture
def three(tmp_path: Path) -> Iterator[BrokerProcess]:
    # A busy host can take longer to stop in order than the default permits.
    flags = ["--drain-timeout-ms", "30000"]
    with BrokerProcess(tmp_path / "data", workers=3, flags=flags) as running:
        yield running


def test_every_worker_has_its_own_ports_and_node_id() -> None:
    settings = BrokerSettings(workers=3, node_id=10, http_listen="127.0.0.1:9644")

    workers = [worker_settings(settings, index, BOOTSTRAP) for index in range(3)]

    assert [worker.listen for worker in workers] == [
        "127.0.0.1:9093",
        "127.0.0.1:9094",
        "127.0.0.1:9095",
    ]
    assert [worker.http_listen[-4:] for worker in workers] == ["9644", "9645", "9646"]
    assert [worker.node_id for worker in workers] == [10, 11, 12]
    assert {worker.bootstrap for worker in workers} == {"127.0.0.1:9092"}
    assert {worker.workers for worker in workers} == {1}


def test_port_zero_and_automatic_node_ids_are_kept() -> None:
    settings = BrokerSettings(workers=2, listen="127.0.0.1:0", http_listen="127.0.0.1:0")

    worker = worker_settings(settings, 1, BOOTSTRAP)

    assert (worker.listen, worker.http_listen) == ("127.0.0.1:0", "127.0.0.1:0")
    assert worker.node_id == -1


def test_http_switched_off_is_off_for_all_workers() -> None:
    assert worker_settings(BrokerSettings(http_listen=""), 1, BOOTSTRAP).http_listen == ""


def test_advertised_ports_are_consecutive() -> None:
    settings = BrokerSettings(advertise="kafka.example:30000")

    assert worker_settings(settings, 1, BOOTSTRAP).advertise == "kafka.example:30002"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (BrokerSettings(listen="127.0.0.1:65535"), "no port 1 after 65535"),
        (BrokerSettings(listen="127.0.0.1:0", advertise="a:1"), "workers need fixed ports"),
    ],
)
def test_insufficient_ports_are_refused(settings: BrokerSettings, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        worker_settings(settings, 0, BOOTSTRAP)


def test_every_listener_of_a_worker_has_its_own_port_and_the_shared_one() -> None:
    tables = {
        "inner": ListenerConfig(listen="127.0.0.1:9092"),
        "outer": ListenerConfig(listen="sasl_ssl://127.0.0.2:9192"),
    }
    shared = {"inner": Address("127.0.0.1", 9092), "outer": Address("127.0.0.2", 9192)}

    worker = worker_settings(BrokerSettings(listeners=tables, workers=2), 1, shared)

    listens = {
        name: (listener.listen, listener.shared) for name, listener in worker.listeners.items()
    }
    assert listens == {
        "inner": ("127.0.0.1:9094", "127.0.0.1:9092"),
        "outer": ("sasl_ssl://127.0.0.2:9194", "127.0.0.2:9192"),
    }


def test_metadata_names_each_worker_with_its_own_port(three: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": three.bootstrap, "log_level": 0})

    brokers = admin.list_topics(timeout=20).brokers

    ports = {broker.port for broker in brokers.values()}
    assert ports == {three.port + 1, three.port + 2, three.port + 3}
    assert set(brokers) == {1, 2, 3}
    # The shared port leads to any of them, and soon all of them know all.
    wait_until(
        lambda: all(brokers_seen(three.port) == {1, 2, 3} for _ in range(10)),
        "not all know all",
    )


def test_killed_worker_is_restarted_as_the_same_node(three: BrokerProcess) -> None:
    create_topic(three.bootstrap)
    before = set(three.worker_pids())
    victim = min(before)
    with Load(three.bootstrap, TOPIC, PARTITIONS, seed=3) as load:
        load.wait_for(20)

        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: len(set(three.worker_pids()) - {victim}) == 3, "it is not restarted")
        wait_until(
            lambda: all(is_open(three.port + number) for number in (1, 2, 3)), "it does not serve"
        )
        load.wait_for(20)

    assert brokers_seen(three.port) == {1, 2, 3}
    check([[]] * PARTITIONS, read_all(three.bootstrap, TOPIC, PARTITIONS), load.acked())


@pytest.mark.usefixtures("own_victim")
def test_stop_under_load_loses_nothing(three: BrokerProcess) -> None:
    create_topic(three.bootstrap)
    workers = three.worker_pids()
    with Load(three.bootstrap, TOPIC, PARTITIONS, seed=4) as load:
        load.wait_for(50)

        code = three.stop(within=PATIENCE_SECONDS)

        assert not any(map(is_alive, workers))
        promised = load.acked()
        three.start()
        load.wait_for(10)
    assert code == 0
    now = read_all(three.bootstrap, TOPIC, PARTITIONS)
    check([[]] * PARTITIONS, now, promised)
    check([[]] * PARTITIONS, now, load.acked())


def test_workers_end_when_the_supervisor_is_killed(three: BrokerProcess) -> None:
    workers = three.worker_pids()

    three.signal(signal.SIGKILL)
    assert three.ended(within=PATIENCE_SECONDS) == -signal.SIGKILL

    wait_until(lambda: not any(map(is_alive, workers)), "workers outlive their supervisor")
    assert three.words().count("the supervisor is gone") == 3
    assert three.words().count("msg=stopped") == 3


def test_a_worker_that_hangs_is_killed(tmp_path: Path) -> None:
    flags = ("--drain-timeout-ms", "500")
    with BrokerProcess(tmp_path / "data", workers=2, flags=flags) as broker:
        workers = broker.worker_pids()
        os.kill(workers[0], signal.SIGSTOP)

        code = broker.stop()

        assert code == 1
        assert "did not stop within 2.0 s; killing them" in broker.words()
        wait_until(lambda: not any(map(is_alive, workers)), "a worker is left behind")


def test_shared_port_in_use_is_reported(three: BrokerProcess, tmp_path: Path) -> None:
    second = BrokerProcess(tmp_path / "other", workers=2)
    second.port = three.port

    with pytest.raises(RuntimeError, match=r"ended with 2") as caught:
        second.start()

    assert f"listen: cannot listen on 127.0.0.1:{three.port}" in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_worker_that_cannot_start_stops_all(three: BrokerProcess, tmp_path: Path) -> None:
    second = BrokerProcess(tmp_path / "other", workers=2)
    # Its first worker needs the port that the others share, and its second one the port after it.
    second.port = three.port - 1
    if is_open(second.port):
        pytest.skip("the port before is taken")

    with pytest.raises(RuntimeError, match=r"ended with 2") as caught:
        second.start()

    assert re.search(r"rookery broker: worker [12]: cannot listen on", str(caught.value))
