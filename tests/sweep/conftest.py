"""One broker for the whole sweep, and the log lines that it must not have at the end."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from rookery.broker.settings import BrokerSettings
from rookery.testing.backends import ETCD, ServerBackend
from rookery.testing.servedbroker import ServedBroker


class Errors(logging.Handler):
    """Keeps what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(logging.Formatter().format(record))


@pytest.fixture(scope="session", params=["folder", ETCD])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedBroker]:
    """A broker that answers every test of the sweep, whatever the ones before have asked."""
    folder = tmp_path_factory.mktemp("sweep")
    settings = BrokerSettings(durability="os")
    if request.param == ETCD:
        backend: ServerBackend = request.getfixturevalue("backend")
        store, cluster = backend.store(folder.name), backend.cluster(folder.name)
        settings = BrokerSettings(store=store, cluster=cluster)
    with ServedBroker(folder / "data", settings) as served:
        yield served


@pytest.fixture(autouse=True)
def errors() -> Iterator[list[str]]:
    """Let nothing be logged as an error: it would be an unexpected exception."""
    handler = Errors()
    logger = logging.getLogger()
    logger.addHandler(handler)
    try:
        yield handler.seen
    finally:
        logger.removeHandler(handler)
    assert not handler.seen, handler.seen[0]
