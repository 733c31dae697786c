"""One broker for all tests of the command line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rookery.testing.broker import BrokerProcess
from tests.cli.running import Rookery


@pytest.fixture(scope="session")
def rookery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rookery]:
    """The command line, with a broker to talk to."""
    folder = tmp_path_factory.mktemp("rookery") / "data"
    with BrokerProcess(folder, flags=["--durability", "os"]) as broker:
        yield Rookery(broker.bootstrap)
