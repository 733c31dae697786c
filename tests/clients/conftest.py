"""One Rookery for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rookery.testing.broker import BrokerProcess
from rookery.testing.java import Java
from tests.clients.peers import address, serve


@pytest.fixture(scope="module")
def rookery_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with serve(tmp_path_factory.mktemp("rookery") / "data") as broker:
        yield broker


@pytest.fixture
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Rookery's address, or with an indirect parameter that of a real Kafka."""
    return address(getattr(request, "param", "rookery"), request)


@pytest.fixture(scope="session")
def java() -> Java:
    """Java with Kafka's jars; its tools take any address."""
    return Java.find()
