"""Real Apache Kafkas, and the servers behind brokers on many hosts, for whoever asks by name.

They start when the first test needs them and live until the session ends; under pytest-xdist each
worker has its own. Topics, groups and transactional ids must therefore be a test's own. A test
that stops or kills a server starts it again, or makes a `KafkaServer` for itself.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from rookery.testing.backends import ETCD, Backend
from rookery.testing.kafka import KafkaCluster, KafkaNode, KafkaServer
from rookery.testing.properties import LISTENERS, KafkaSettings

USERS = {"alice": "alice-secret", "admin": "admin-secret"}
FIXTURES = frozenset({"kafka", "kafka_secure", "kafka_cluster"})


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaServer]:
    """One server with a PLAINTEXT listener."""
    with KafkaServer() as server:
        yield server


@pytest.fixture(scope="session")
def kafka_secure() -> Iterator[KafkaServer]:
    """One server with every listener, whose users are alice and admin (a super user)."""
    with KafkaServer(KafkaSettings(listeners=LISTENERS, users=USERS)) as server:
        yield server


@pytest.fixture(scope="session")
def backend() -> Iterator[Backend]:
    """One S3 server and one etcd; each test takes a name of its own in them."""
    with Backend(ETCD) as servers:
        yield servers


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[KafkaCluster]:
    """Three servers; topics have three replicas unless told otherwise."""
    with KafkaCluster(3) as cluster:
        yield cluster


def pytest_configure(config: pytest.Config) -> None:
    """Let kafka-python be imported: it reads its own files in a way that Python 3.11 warns of."""
    config.addinivalue_line("filterwarnings", "ignore:.*_text is deprecated:DeprecationWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark whatever uses a real Kafka, so that `-m "not kafka"` leaves it out."""
    for item in items:
        if FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.kafka)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what Kafka said beside a failed test."""
    report = yield
    if report.failed:
        for node in _nodes(item):
            report.sections.append((f"Kafka node {node.id}: {node.log}", node.last_words()))
    return report


def _nodes(item: pytest.Item) -> Iterator[KafkaNode]:
    for value in getattr(item, "funcargs", {}).values():
        match value:
            case KafkaNode():
                yield value
            case KafkaCluster():
                yield from value.nodes
            case _:
                pass
