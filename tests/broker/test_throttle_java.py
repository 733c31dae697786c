"""Quotas in the metrics of Java's clients: how long the broker has made them pause."""

from __future__ import annotations

import re

from rookery.testing.java import Java
from rookery.testing.servedbroker import ServedBroker
from tests.broker.test_throttle import limit

RATE = 20_000
SIZE = 10_000
RECORDS = 30
"""More than a client may send or fetch at once: ten seconds of its rate."""


def throttle_times(output: str, kind: str) -> dict[str, float]:
    """Return a client's metrics of pauses from what a tool prints."""
    rows = re.findall(rf":{kind}-throttle-time-(avg|max):\{{[^}}]*\}}\s*:\s*(\S+)", output)
    return {name: float(value) for name, value in rows}


def produce(java: Java, broker: ServedBroker, client: str) -> dict[str, float]:
    done = java.tool(
        "kafka-producer-perf-test",
        *("--bootstrap-server", broker.bootstrap, "--topic", "pauses"),
        *("--num-records", str(RECORDS), "--record-size", str(SIZE), "--throughput", "-1"),
        *("--command-property", f"client.id={client}", "batch.size=1", "linger.ms=0"),
        "--print-metrics",
    )
    assert done.returncode == 0, done.stderr
    return throttle_times(done.stdout, "produce")


def consume(java: Java, broker: ServedBroker, client: str) -> dict[str, float]:
    done = java.tool(
        "kafka-consumer-perf-test",
        *("--bootstrap-server", broker.bootstrap, "--topic", "pauses", "--group", client),
        *("--num-records", str(2 * RECORDS), "--timeout", "60000"),
        *("--command-property", f"client.id={client}", "max.partition.fetch.bytes=15000"),
        "--print-metrics",
    )
    assert done.returncode == 0, done.stderr
    return throttle_times(done.stdout, "fetch")


def test_java_clients_measure_their_pauses(java: Java, broker: ServedBroker) -> None:
    for key in ("producer_byte_rate", "consumer_byte_rate"):
        limit(broker, key, RATE, [("client-id", "slow")])

    free, slow = (produce(java, broker, client) for client in ("free", "slow"))
    assert free == {"avg": 0, "max": 0}
    assert slow["max"] >= slow["avg"] > 0

    free, slow = (consume(java, broker, client) for client in ("free", "slow"))
    assert free == {"avg": 0, "max": 0}
    assert slow["max"] >= slow["avg"] > 0
