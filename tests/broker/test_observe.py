"""A broker's reports of its health and traffic."""

from __future__ import annotations

import json
import resource
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rookery.broker.broker import Broker
from rookery.broker.process import observe
from rookery.broker.process.observe import Observer
from rookery.broker.settings import BrokerSettings
from rookery.clock import SystemClock
from rookery.errors import Unavailable
from rookery.log.write.traffic import Traffic
from rookery.metrics import Registry
from rookery.net.httptext import HttpRequest
from rookery.service.health import HealthEndpoints


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    running = Broker(BrokerSettings(data=str(tmp_path), listen="127.0.0.1:0", http_listen=""))
    await running.start()
    yield running
    await running.stop()


async def problems(broker: Broker) -> dict[str, str]:
    observer = Observer(broker)
    await observer.probe()
    results = {name: check() for name, check in observer.ready_checks().items()}
    return {name: problem for name, problem in results.items() if problem}


async def test_a_running_broker_is_ready(broker: Broker) -> None:
    assert await problems(broker) == {}
    assert Observer(broker).live_checks()["broker"]() == ""


async def test_a_broker_that_is_still_starting_is_not_ready(broker: Broker) -> None:
    endpoints = HealthEndpoints(Observer(broker))
    request = HttpRequest("GET", "/health/ready")

    before = await endpoints.routes()["/health/ready"](request)
    endpoints.is_started = True
    after = await endpoints.routes()["/health/ready"](request)

    assert before.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert b"the broker is still starting: reading the cluster log, at entry" in before.body
    assert after.status == HTTPStatus.OK


async def test_process_metrics_describe_this_process(broker: Broker) -> None:
    endpoints = HealthEndpoints(Observer(broker))
    endpoints.is_started = True
    body = (await endpoints.routes()["/metrics"](HttpRequest("GET", "/metrics"))).body.decode()
    samples = {
        sample.name: sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
        if sample.name.startswith("process_")
    }
    usage = resource.getrusage(resource.RUSAGE_SELF)
    assert 0 < samples["process_cpu_seconds_total"] <= usage.ru_utime + usage.ru_stime + 0.1
    assert 1 << 20 < samples["process_resident_memory_bytes"] < 64 << 30
    assert samples["process_virtual_memory_bytes"] >= samples["process_resident_memory_bytes"]
    assert 3 < samples["process_open_fds"] <= samples["process_max_fds"]
    now = SystemClock().now_ms() / 1000
    assert now - 86_400 < samples["process_start_time_seconds"] <= now + 1


async def test_a_draining_broker_is_not_ready(broker: Broker) -> None:
    broker.is_stopping = True

    assert await problems(broker) == {"draining": "the broker is stopping"}


async def test_log_that_accepts_no_entries_is_unreachable(broker: Broker) -> None:
    broker.replica._follower.trouble = "the disk is full: free some space"

    assert await problems(broker) == {"cluster log": "the disk is full: free some space"}


async def test_log_that_does_not_answer_is_unreachable(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreachable() -> int:
        raise Unavailable("cluster.sqlite: the disk fails")

    monkeypatch.setattr(broker.replica, "lag", unreachable)

    assert await problems(broker) == {"cluster log": "cluster.sqlite: the disk fails"}


async def test_lagging_replica_is_not_ready(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def far() -> int:
        return observe.MAX_LAG + 1

    monkeypatch.setattr(broker.replica, "lag", far)

    assert await problems(broker) == {"replica": "1001 entries behind the cluster log"}


async def test_a_broker_that_failed_is_not_alive(broker: Broker) -> None:
    broker.failed.set_exception(Unavailable("the replica stopped"))

    assert Observer(broker).live_checks()["broker"]() == "the replica stopped"
    assert (await problems(broker))["broker"] == "the replica stopped"


def test_traffic_metrics_of_a_deleted_topic_are_removed() -> None:
    registry = Registry()
    traffic = Traffic(
        registry.counters("rookery_test_bytes_total", "Bytes.", ("topic",)),
        registry.counters("rookery_test_records_total", "Records.", ("topic",)),
    )
    traffic.add(b"1", "gone", 1, 10)
    traffic.add(b"2", "again", 2, 20)
    traffic.add(b"3", "again", 3, 30)

    traffic.keep({b"3"}, {"again"})

    text = registry.expose()
    assert 'rookery_test_records_total{topic="again"} 5' in text
    assert "gone" not in text


async def test_failing_maintenance_is_a_warning_and_the_broker_stays_ready(broker: Broker) -> None:
    observer = Observer(broker)
    endpoints = HealthEndpoints(observer)
    endpoints.is_started = True
    broker.caretaking.take(
        {"quarantined": 1, "failures": 3, "problems": ["rewrite of topic t: bad"], "snapshot": 0}
    )

    answer = await endpoints.routes()["/health/ready"](HttpRequest("GET", "/health/ready"))
    await observer.refresh()

    assert answer.status == HTTPStatus.OK
    assert json.loads(answer.body)["warnings"] == {
        "caretaker": "maintenance skips 1 items that it cannot process: rewrite of topic t: bad"
    }
    assert observe._CARE_QUARANTINED.value == 1
    assert observe._CARE_FAILURES.value == 3
