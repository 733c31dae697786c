"""`rookery perf`: the measurements and their output."""

from __future__ import annotations

import asyncio

import pytest

from rookery.cli import pace as paces
from rookery.cli.output.figures import Speed, quantiles, size_text, sparkline
from rookery.testing.kafka import KafkaServer
from tests.cli.running import Rookery


def _check(answer: dict[str, object], records: int, size: int) -> None:
    times = answer["latency_ms"]
    assert isinstance(times, dict)
    assert answer["records"] == records
    assert answer["bytes"] == records * size
    assert list(times) == ["p50", "p95", "p99", "p99.9", "max"]
    assert 0 < times["p50"] <= times["p99.9"] <= times["max"]


def test_producing_then_consuming(rookery: Rookery) -> None:
    load = ("--records", "20k", "--warmup", "1k")

    produced = rookery.json("perf", "produce", "perf-birds", *load, "--size", "50")
    consumed = rookery.json("perf", "consume", "perf-birds", "--records", "21k")

    _check(produced, 20_000, 50)
    _check(consumed, 21_000, 50)
    assert produced["mb_per_second"] > 0


async def test_chosen_throughput_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    now, number = 7.0, 0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(paces, "loop_seconds", lambda: now)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    pace = paces.SendPace(1_000)
    for number in range(500):
        await pace.wait(number)

    assert now == pytest.approx(7.0 + number / 1_000, abs=0.0011)


def test_a_throughput_can_be_chosen(rookery: Rookery) -> None:
    load = ("--records", "50", "--throughput", "1000", "--warmup", "0")

    _check(rookery.json("perf", "produce", "perf-slow", *load), 50, 100)


def test_latency_is_measured(rookery: Rookery) -> None:
    said = rookery.json(
        "perf", "latency", "perf-trip", "--records", "200", "--warmup", "20", "--size", "20"
    )

    _check(said, 220, 20)


def test_performance_is_measured_on_a_real_kafka(kafka: KafkaServer) -> None:
    rookery = Rookery(kafka.bootstrap)

    _check(
        rookery.json("perf", "produce", "perf-kafka", "--records", "5k", "--warmup", "10"),
        5_000,
        100,
    )
    rookery("perf", "latency", "perf-kafka-trip", "--records", "50", "--warmup", "5")


def test_performance_summary_is_readable(rookery: Rookery) -> None:
    said = rookery("perf", "produce", "perf-words", "--records", "1k", "--warmup", "0").decode()

    assert "1,000 records" in said
    assert "p99.9" in said


def test_consuming_an_empty_topic_suggests_producing(rookery: Rookery) -> None:
    topic = rookery.topic()

    done = rookery.run("perf", "consume", topic)

    assert done.returncode == 1
    assert f"rookery perf produce {topic}".encode() in done.stderr


def test_refusal_is_reported_in_one_line(rookery: Rookery) -> None:
    topic = rookery.topic("-c", "max.message.bytes=1000")

    done = rookery.run("perf", "produce", topic, "--size", "5000", "--records", "10")

    assert done.returncode == 1
    assert b"MESSAGE_TOO_LARGE" in done.stderr
    assert b"Traceback" not in done.stderr


def test_quantiles_are_computed() -> None:
    values = [float(number) for number in range(1, 1001)]

    computed = quantiles(values[::-1])

    assert computed == {"p50": 501, "p95": 951, "p99": 991, "p99.9": 1000, "max": 1000}
    assert quantiles([]) == {}
    assert set(quantiles([7.0]).values()) == {7.0}


def test_speeds_are_computed_and_printed() -> None:
    speed = Speed(1_000, 5_000_000, 2.0)

    assert (speed.records_per_second, speed.mb_per_second) == (500, 2.5)
    assert Speed(1, 1, 0.0).records_per_second == 0
    assert speed.text() == "1,000 records, 5.0 MB in 2.00 s: 500 records/s, 2.5 MB/s"


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (2e9, "2.0 GB")]
)
def test_sizes_are_printed(size: float, text: str) -> None:
    assert size_text(size) == text


def test_sparklines_are_drawn() -> None:
    assert sparkline([0, 1, 2, 4, 8]) == "▁▂▃▅█"
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == ""
