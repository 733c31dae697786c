"""Java's producer and consumer at work while their logins expire: nothing is lost or doubled.

On a busy machine, Java's client can leave a response in its own buffer while it renews a login,
until something else wakes it. It paused for 2.5 s before Apache Kafka, too, and requests timed out.
So the producer retries here, and a login may be late now and then.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rookery.testing.java import Java
from tests.broker.secured import PASSWORD, USER, SecuredBroker, serve_secured

SESSION_MS = 1_500
RECORDS = 6_000
RETRIES = 1_000
PER_SECOND = 500
LOGINS = 2
"""The logins that the busiest connection has at least: about eight, but fewer on a busy machine."""
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("renewed")
    with serve_secured(folder, max_session_ms=SESSION_MS) as broker:
        broker.add_user("bob", PASSWORD)
        yield broker


def write_config(broker: SecuredBroker, path: Path, user: str) -> str:
    lines = [
        "security.protocol=SASL_SSL",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={broker.files.ca}",
        "sasl.mechanism=SCRAM-SHA-256",
        f'sasl.jaas.config={MODULE} required username="{user}" password="{PASSWORD}";',
        # The verifiable producer does not retry by default.
        *(f"retries={RETRIES}", "request.timeout.ms=5000"),
    ]
    path.write_text("\n".join(lines))
    return str(path)


class JavaClient:
    """One of Kafka's verifiable clients, which print what they do as lines of JSON."""

    def __init__(self, java: Java, broker: SecuredBroker, config: str) -> None:
        self._java = java
        self._options = (
            *("--bootstrap-server", broker.address("sasl_ssl")),
            *("--command-config", config),
        )

    def run(self, name: str, *args: str) -> list[dict[str, Any]]:
        done = self._java.tool(name, *self._options, *args)
        assert done.returncode == 0, done.stderr
        rows = [line for line in done.stdout.splitlines() if line.startswith("{")]
        return [json.loads(row) for row in rows]


def logins_of(user: str, lines: list[logging.LogRecord]) -> Counter[str]:
    """Return how often a user has logged in on each connection."""
    text = f"login of User:{user}"
    return Counter(getattr(line, "client", "") for line in lines if line.getMessage() == text)


@pytest.mark.parametrize("protocol", ["CLASSIC", "CONSUMER"])
def test_java_clients_lose_and_double_nothing_while_their_logins_are_renewed(
    java: Java,
    secured: SecuredBroker,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    protocol: str,
) -> None:
    caplog.set_level(logging.INFO, "rookery")
    topic = f"renewed-{protocol.lower()}"
    writer = JavaClient(java, secured, write_config(secured, tmp_path / "writer", USER))
    reader = JavaClient(java, secured, write_config(secured, tmp_path / "reader", "bob"))
    amount = ("--topic", topic, "--max-messages", str(RECORDS))

    with ThreadPoolExecutor(2) as pool:
        sending = pool.submit(
            writer.run, "kafka-verifiable-producer", *amount, "--throughput", str(PER_SECOND)
        )
        reading = pool.submit(
            reader.run,
            *("kafka-verifiable-consumer", *amount, "--verbose"),
            *("--group-id", topic, "--group-protocol", protocol),
        )
        sent, read = sending.result(), reading.result()

    assert [row for row in sent if row["name"] == "producer_send_error"] == []
    acked = {
        int(row["value"]): row["offset"] for row in sent if row["name"] == "producer_send_success"
    }
    assert acked == {number: number for number in range(RECORDS)}
    values = [int(row["value"]) for row in read if row["name"] == "record_data"]
    assert values == [*range(RECORDS)]
    for user in (USER, "bob"):
        assert max(logins_of(user, caplog.records).values()) >= LOGINS
