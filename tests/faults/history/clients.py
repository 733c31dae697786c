"""The settings of the clients, and the meaning of their errors."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.faults.history.events import COMMITTED

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
PROTOCOLS: Final = (CLASSIC, CONSUMER)

SESSION_MS: Final = 6_000
TXN_MS: Final = 15_000
"""How long a transaction may be open: a producer that dies within one delays readers by this."""


_COMMON: Final = {
    "log_level": 0,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 300,
    # Shorter than a pause: no client waits until a paused process resumes.
    "socket.timeout.ms": 3_000,
    "topic.metadata.refresh.interval.ms": 5_000,
}
_PRODUCER: Final = {
    "enable.idempotence": True,
    "linger.ms": 2,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "request.timeout.ms": 3_000,
}


def producer(bootstrap: str) -> Producer:
    """Return an idempotent producer that never gives a record up."""
    return Producer(
        {"bootstrap.servers": bootstrap, **_COMMON, **_PRODUCER, "message.timeout.ms": 600_000}
    )


def transactional(bootstrap: str, transactional_id: str) -> Producer:
    """Return a producer of transactions, not initialised yet."""
    options: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        **_COMMON,
        **_PRODUCER,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": TXN_MS,
        "message.timeout.ms": TXN_MS,
    }
    return Producer(options)


def member(bootstrap: str, group: str, protocol: str, strategy: str = "range") -> Consumer:
    """Return a member of a group that reads what is committed."""
    options: dict[str, Any] = {
        **_consumer(bootstrap, COMMITTED),
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
    }
    if protocol == CLASSIC:
        options |= {
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 1_000,
            "partition.assignment.strategy": strategy,
        }
    return Consumer(options)


def lone_reader(bootstrap: str, isolation: str, group: str = "nobodys") -> Consumer:
    """Return a reader that joins no group, and reports ends and offsets."""
    return Consumer(
        {
            **_consumer(bootstrap, isolation),
            "group.id": group,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )


def admin(bootstrap: str) -> AdminClient:
    """Return a client that asks questions."""
    return AdminClient({"bootstrap.servers": bootstrap, **_COMMON})


def cause(error: KafkaException) -> KafkaError:
    """Return the cause of an exception."""
    kafka_error: KafkaError = error.args[0]
    return kafka_error


def _consumer(bootstrap: str, isolation: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        **_COMMON,
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 50,
    }
