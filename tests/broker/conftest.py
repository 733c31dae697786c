"""A real broker for tests that ask for one, and Kafka's own tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from rookery.broker.settings import BrokerSettings
from rookery.testing.backends import ETCD, ServerBackend
from rookery.testing.java import Java
from rookery.testing.servedbroker import ServedBroker

Start = Callable[..., ServedBroker]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start brokers of one cluster, each with the settings given; they stop with the test."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(
            ServedBroker(tmp_path / "data", BrokerSettings(durability="os", **settings))
        )


@pytest.fixture(scope="module", params=["folder", ETCD])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedBroker]:
    """One broker for all tests of a file: over a folder, then over S3 and etcd."""
    folder = tmp_path_factory.mktemp("broker")
    # Keep old records: retention runs too late to delete them.
    settings = BrokerSettings(durability="os", upkeep_interval_ms=3_600_000)
    if request.param == ETCD:
        backend: ServerBackend = request.getfixturevalue("backend")
        store, cluster = backend.store(folder.name), backend.cluster(folder.name)
        settings = replace(settings, store=store, cluster=cluster)
    with ServedBroker(folder / "data", settings) as broker:
        yield broker


@pytest.fixture
def broker(start: Start) -> ServedBroker:
    """One broker, alone in its cluster."""
    return start()


@pytest.fixture(scope="session")
def java() -> Java:
    """Java with Kafka's jars; its tools take any address."""
    return Java.find()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses Kafka's tools: they are fetched with the server."""
    for item in items:
        if "java" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.kafka)
