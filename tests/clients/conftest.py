"""One Rookery for all tests of this folder, and one over S3 and etcd: every test runs on both."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from rookery.testing.backends import ServerBackend
from rookery.testing.broker import BrokerProcess
from rookery.testing.brokers import Host
from rookery.testing.java import Java
from rookery.testing.tools import ToolHost
from tests.clients.logins.programs import FranzClient, build_franz
from tests.clients.peers import KINDS, FindBroker, address, serve, serve_each, serve_objects


@pytest.fixture(scope="module")
def rookery_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with serve(tmp_path_factory.mktemp("rookery") / "data") as broker:
        yield broker


@pytest.fixture(scope="module")
def proxied_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FindBroker]:
    """A Rookery for each kind of proxy: tests make the same topics with all of them."""
    with serve_each(tmp_path_factory) as find:
        yield find


@pytest.fixture(scope="session")
def objects_broker(
    backend: ServerBackend, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Host]:
    with serve_objects(backend, tmp_path_factory.mktemp("clients")) as broker:
        yield broker


@pytest.fixture
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Rookery's address, or with an indirect parameter that of a real Kafka."""
    return address(request.param, request)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Send every test that does not say where it goes to Rookery, over a folder and over S3."""
    marks = metafunc.definition.iter_markers("parametrize")
    is_told = any("bootstrap" in mark.args[0] for mark in marks)
    if "bootstrap" in metafunc.fixturenames and not is_told:
        metafunc.parametrize("bootstrap", KINDS, indirect=True)


@pytest.fixture(scope="session")
def java() -> Java:
    """Java with Kafka's jars; its tools take any address."""
    return Java.find()


@pytest.fixture(scope="session")
def tools(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolHost]:
    """One Java for all of Kafka's command line tools that are called one after the other."""
    with ToolHost(java, tmp_path_factory.mktemp("tools")) as host:
        yield host


@pytest.fixture(scope="session")
def franz(tmp_path_factory: pytest.TempPathFactory) -> FranzClient:
    """franz-go, built with the Go of this machine."""
    go = shutil.which("go")
    if go is None:
        pytest.fail("Go is not installed: franz-go needs version 1.24 or newer")
    return FranzClient(build_franz(tmp_path_factory.mktemp("franz"), go))
