"""Quotas of users that have logged in, in the metrics of their clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.errors import ErrorCode
from rookery.testing.wait import wait_until
from tests.broker.secured import PASSWORD, USER, SecuredBroker, serve_secured
from tests.broker.test_client_quotas import Parts, alter
from tests.kafkapython import KafkaProducer

ALICE, ANYONE = ("user", USER), ("user", None)
APP = ("client-id", "app")
LISTENER, MECHANISM = "sasl_plaintext", "SCRAM-SHA-256"
BYTES: list[tuple[str, float | None]] = [("producer_byte_rate", 1_000.0)]
SIZE = 20_000
"""More than a client may send at once: ten seconds of its rate."""


@pytest.fixture
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with serve_secured(tmp_path_factory.mktemp("throttle")) as broker:
        broker.add_user("bob", PASSWORD)
        yield broker


class Pauses:
    """A client of librdkafka, and the pauses that it has seen."""

    def __init__(self, broker: SecuredBroker, user: str, client_id: str) -> None:
        self.seen: list[float] = []
        self.config: dict[str, Any] = broker.librdkafka(
            LISTENER,
            MECHANISM,
            **{
                "sasl.username": user,
                "client.id": client_id,
                "compression.type": "none",
                "throttle_cb": lambda event: self.seen.append(event.throttle_time),
            },
        )

    def produce(self) -> Producer:
        """Send one record and wait until it is stored."""
        producer = Producer(self.config)
        producer.produce("quota", bytes(SIZE), partition=0)
        assert producer.flush(20) == 0
        return producer


def limit(broker: SecuredBroker, entity: Parts, key: str, value: float) -> None:
    [(code, text)] = alter(broker.address("plaintext"), (entity, [(key, value)]))
    assert code is ErrorCode.NONE, text


@pytest.mark.parametrize(
    ("entity", "free"),
    [
        ([ALICE], ("bob", "app")),
        ([ALICE, APP], (USER, "other")),
        ([ALICE, ("client-id", None)], ("bob", "app")),
        ([ANYONE, APP], (USER, "other")),
    ],
    ids=["user", "user and client", "user and any client", "any user and client"],
)
@pytest.mark.parametrize(
    ("key", "value"), [("producer_byte_rate", 1_000.0), ("request_percentage", 1e-9)]
)
def test_client_sees_the_pauses_of_its_user(
    secured: SecuredBroker, entity: Parts, free: tuple[str, str], key: str, value: float
) -> None:
    limit(secured, entity, key, value)
    slow, others = Pauses(secured, USER, "app"), Pauses(secured, *free)

    other = others.produce()
    producer = slow.produce()

    wait_until(lambda: bool(producer.poll(0.01) or any(slow.seen)))
    other.poll(0)
    assert not any(others.seen)


def test_kafka_python_measures_the_pauses_of_its_user(secured: SecuredBroker) -> None:
    limit(secured, [ALICE], "producer_byte_rate", 1_000.0)

    def longest(user: str) -> float:
        producer = KafkaProducer(
            bootstrap_servers=secured.address(LISTENER),
            security_protocol=LISTENER.upper(),
            sasl_mechanism=MECHANISM,
            sasl_plain_username=user,
            sasl_plain_password=PASSWORD,
        )
        producer.send("quota", bytes(SIZE)).get(20)
        metrics = producer.metrics()["producer-metrics"]
        producer.close(timeout=0)
        return float(metrics["throttle-time-max"])

    assert longest("bob") == 0
    assert longest(USER) > 0


def test_administrator_sees_the_pauses_for_changes_of_partitions(secured: SecuredBroker) -> None:
    limit(secured, [ALICE], "controller_mutation_rate", 1.0)
    slow, others = Pauses(secured, USER, "app"), Pauses(secured, "bob", "app")
    for pauses, name in ((slow, "a"), (others, "b")):
        admin = AdminClient(pauses.config)
        admin.create_topics([NewTopic(name, 20, 1)])[name].result(20)
        if pauses is slow:
            wait_until(lambda: bool(admin.poll(0.01) or any(slow.seen)))  # noqa: B023 (done at once)
        admin.poll(0)
    assert not any(others.seen)
