"""One Rookery for all tests of this folder, and kcat to talk to it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest

from rookery.testing.backends import ServerBackend
from rookery.testing.broker import BrokerProcess
from rookery.testing.brokers import Host
from tests.clients.peers import BOTH, FindBroker, address, serve, serve_each, serve_objects

Kcat = Callable[..., bytes]


@pytest.fixture(scope="session")
def rookery_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with serve(tmp_path_factory.mktemp("rookery") / "data") as broker:
        yield broker


@pytest.fixture(scope="session")
def proxied_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FindBroker]:
    """A Rookery for each kind of proxy: tests make the same topics with all of them."""
    with serve_each(tmp_path_factory) as find:
        yield find


@pytest.fixture(scope="session")
def objects_broker(
    backend: ServerBackend, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Host]:
    with serve_objects(backend, tmp_path_factory.mktemp("kcat")) as broker:
        yield broker


@pytest.fixture(params=BOTH)
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Every test runs against Rookery, and against a real Kafka to see that it is right."""
    return address(request.param, request)


@pytest.fixture
def kcat(bootstrap: str) -> Kcat:
    """Run kcat and return what it printed; it must end well."""
    program = shutil.which("kcat")
    if program is None:
        pytest.fail("kcat is not installed; scripts/install-peers does it")

    def run(*args: str, data: bytes = b"") -> bytes:
        done = subprocess.run(
            [program, "-b", bootstrap, *args],
            input=data,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    return run
