"""One broker process: ready, under load, stopped, started again."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from rookery.testing.broker import BrokerProcess
from rookery.testing.probe import brokers_seen
from rookery.testing.wait import PATIENCE_SECONDS, wait_until
from tests.crash.killing import PARTITIONS, TOPIC, create_topic
from tests.crash.load import Load, check, read_all


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    # A busy host can take longer to stop in order than the default permits.
    flags = ["--drain-timeout-ms", "30000"]
    with BrokerProcess(tmp_path / "data", flags=flags) as running:
        yield running


def ask(address: str, path: str) -> tuple[int, str]:
    with closing(HTTPConnection(address, timeout=10)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_stop_under_load_loses_nothing(broker: BrokerProcess, number: signal.Signals) -> None:
    create_topic(broker.bootstrap)
    nothing: list[list[int]] = [[] for _ in range(PARTITIONS)]
    with Load(broker.bootstrap, TOPIC, PARTITIONS, seed=1) as load:
        load.wait_for(100)

        broker.signal(number)
        code = broker.ended(within=PATIENCE_SECONDS)

        promised = load.acked()
        broker.start()
        load.wait_for(10)
    # It ends with another status if it could not stop in order within its own bound.
    assert code == 0
    now = read_all(broker.bootstrap, TOPIC, PARTITIONS)
    check(nothing, now, promised)
    check(nothing, now, load.acked())
    assert "level=error" not in broker.words()
    assert "level=warning" not in broker.words()


def test_a_long_poll_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    # Were the stop to wait for the fetch, it would take minutes.
    flags = ["--drain-timeout-ms", "250000"]
    with BrokerProcess(tmp_path / "patient", flags=flags) as broker:
        create_topic(broker.bootstrap)
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "waits",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 250_000,
                "socket.timeout.ms": 300_000,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        with closing(consumer):
            _wait_until(broker, "rookery_broker_fetches_waiting", 1, consumer)

            assert broker.stop(within=PATIENCE_SECONDS) == 0


def test_records_survive_a_restart(broker: BrokerProcess) -> None:
    _produce(broker.bootstrap, [b"one", b"two"])
    broker.stop()

    ready = broker.start()
    _produce(broker.bootstrap, [b"three"])

    assert _consume(broker.bootstrap, 3) == [b"one", b"two", b"three"]
    # The same node in its next life, and the same cluster.
    assert [row["node_id"] for row in ready["brokers"]] == [1]


def test_a_killed_broker_gets_its_node_id_back(broker: BrokerProcess) -> None:
    broker.kill()

    ready = broker.start()

    assert [row["node_id"] for row in ready["brokers"]] == [1]


def test_metrics_cover_requests_topics_and_flushes(broker: BrokerProcess) -> None:
    _produce(broker.bootstrap, [b"x" * 100] * 50)
    assert len(_consume(broker.bootstrap, 50)) == 50

    status, text = ask(broker.http[0], "/metrics")

    assert status == 200
    numbers = _numbers(text)
    assert numbers['rookery_log_written_records_total{topic="t"}'] == 50
    assert numbers['rookery_log_written_bytes_total{topic="t"}'] > 5000
    assert numbers['rookery_log_read_records_total{topic="t"}'] == 50
    assert numbers['rookery_log_read_bytes_total{topic="t"}'] > 5000
    assert numbers['rookery_broker_request_seconds_count{api="Produce"}'] >= 1
    assert numbers['rookery_broker_request_seconds_count{api="Fetch"}'] >= 1
    assert numbers["rookery_log_flush_bytes_count"] >= 1
    assert numbers["rookery_log_flush_seconds_count"] >= 1
    assert numbers["rookery_cluster_append_seconds_count"] >= 1
    assert numbers["rookery_log_tail_hits_total"] >= 1
    assert numbers["rookery_net_connections_total"] >= 2
    assert numbers["rookery_cluster_applied_entry"] >= 4
    assert numbers["rookery_cluster_lag_entries"] == 0
    assert numbers["rookery_broker_brokers_live"] == 1


def test_healthy_broker_reports_ready(broker: BrokerProcess) -> None:
    for path in ("/health/live", "/health/ready"):
        status, text = ask(broker.http[0], path)

        assert (status, json.loads(text)) == (200, {"ok": True, "problems": {}})


def test_two_processes_started_by_hand_share_a_folder(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    second = BrokerProcess(tmp_path / "data")
    second.log = tmp_path / "second.log"
    with second:
        _produce(broker.bootstrap, [b"through the first"])

        assert _consume(second.bootstrap, 1) == [b"through the first"]
        assert second.stop() == 0


def test_port_in_use_is_reported(broker: BrokerProcess, tmp_path: Path) -> None:
    second = BrokerProcess(tmp_path / "other")
    second.port = broker.port

    with pytest.raises(RuntimeError, match=r"ended with 2") as caught:
        second.start()

    text = str(caught.value)
    assert f"cannot listen on 127.0.0.1:{broker.port}: Address already in use" in text
    assert "Traceback" not in text


def test_http_port_in_use_is_reported(broker: BrokerProcess, tmp_path: Path) -> None:
    second = BrokerProcess(tmp_path / "data", flags=("--http-listen", broker.http[0]))
    second.log = tmp_path / "second.log"

    with pytest.raises(RuntimeError, match=r"ended with 2") as caught:
        second.start()

    assert f"cannot listen on {broker.http[0]} for HTTP" in str(caught.value)
    # The cluster does not know it.
    assert brokers_seen(broker.port) == {1}


def test_http_can_be_switched_off(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", flags=("--http-listen", "")) as broker:
        assert broker.http == [""]


def test_unusable_data_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    broker = BrokerProcess(tmp_path / "file" / "data")
    broker.log = tmp_path / "log"

    with pytest.raises(RuntimeError, match=r"ended with 2") as caught:
        broker.start()

    assert "data: cannot use the folder" in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_data_folder_of_another_version_is_reported(broker: BrokerProcess) -> None:
    broker.stop()
    with closing(sqlite3.connect(broker.folder / "cluster.sqlite")) as database:
        database.execute("PRAGMA user_version = 99")

    with pytest.raises(RuntimeError, match=r"ended with 1") as caught:
        broker.start()

    assert "a cluster log of format 99" in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_second_signal_stops_immediately(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap)
    with Load(broker.bootstrap, TOPIC, PARTITIONS, seed=2) as load:
        load.wait_for(10)
        # Stopped in the middle: both signals are pending when it resumes.
        broker.signal(signal.SIGSTOP)
        broker.signal(signal.SIGTERM)
        broker.signal(signal.SIGINT)
        broker.signal(signal.SIGCONT)

        assert broker.ended(within=PATIENCE_SECONDS) == 1
        broker.start()
    check([[]] * PARTITIONS, read_all(broker.bootstrap, TOPIC, PARTITIONS), load.acked())


def _numbers(text: str) -> dict[str, float]:
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def _wait_until(broker: BrokerProcess, name: str, least: float, consumer: Consumer) -> None:
    def value() -> float:
        consumer.poll(0.02)
        return _numbers(ask(broker.http[0], "/metrics")[1]).get(name, 0)

    wait_until(value, name, accepts=lambda number: number >= least)


def _produce(bootstrap: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for value in values:
        producer.produce("t", value)
    assert producer.flush(20) == 0


def _consume(bootstrap: str, count: int) -> list[bytes]:
    options = {"group.id": "g", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": bootstrap, **options})
    consumer.assign([TopicPartition("t", 0, 0)])
    values: list[bytes] = []

    def read() -> int:
        messages = consumer.consume(count, 0.2)
        values.extend(message.value() or b"" for message in messages if not message.error())
        return len(values)

    with closing(consumer):
        wait_until(read, "records", accepts=lambda read: read >= count, pause=0)
    return values
