"""Real Apache Kafkas, the servers that brokers on many hosts share, and Spark, as fixtures.

They start when the first test needs them and live until the session ends. Tests that share a
server run on one worker of pytest-xdist (see `tests/tiers.py`), so a whole run starts each server
once. Topics, groups and transactional ids must therefore be a test's own. A test that stops or
kills a server starts it again, or makes a `KafkaServer` for itself.
"""

from __future__ import annotations

import os
import signal
import sysconfig
from collections.abc import Generator, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from rookery.testing.backends import ETCD, ServerBackend
from rookery.testing.etcd import EtcdCluster
from rookery.testing.kafka import KafkaCluster, KafkaNode, KafkaServer
from rookery.testing.ports import HOST, free_port
from rookery.testing.process import LoggedProcess
from rookery.testing.properties import LISTENERS, KafkaSettings
from rookery.testing.seaweed import SeaweedServer
from tests.budget import WAITED, charge, waited_seconds
from tests.cluster.etcdusers import guard
from tests.frozen import FrozenWatch
from tests.proxies import Proxies
from tests.tiers import KAFKA, Tier, find_group, find_tier, rank_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A shell lets background jobs ignore interrupts, and nohup hang-ups; child processes inherit both.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# Processes that tests start must report where they crash, too.
os.environ.setdefault("PYTHONFAULTHANDLER", "1")

# An example may take any time: a busy machine must not fail a test. `make test` chooses the profile
# `ci`, which has no deadline either.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# A short run is over before the optimizing compiler has paid for itself.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
USERS = {"alice": "alice-secret", "admin": "admin-secret"}


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaServer]:
    """One server with a PLAINTEXT listener."""
    # Many tests write records of years ago, which Kafka would delete every five minutes.
    properties = {"log.retention.check.interval.ms": str(24 * 3600 * 1000)}
    with KafkaServer(KafkaSettings(properties=properties)) as server:
        yield server


@pytest.fixture(scope="session")
def kafka_secure() -> Iterator[KafkaServer]:
    """One server with every listener, whose users are alice and admin (a super user)."""
    with KafkaServer(KafkaSettings(listeners=LISTENERS, users=USERS)) as server:
        yield server


@pytest.fixture(scope="session")
def backend() -> Iterator[ServerBackend]:
    """One S3 server and one etcd; each test takes a name of its own in them."""
    with ServerBackend(ETCD) as servers:
        yield servers


@pytest.fixture(scope="session")
def seaweed(backend: ServerBackend) -> SeaweedServer:
    """The S3 server; each test takes a prefix of its own in it."""
    return backend.seaweed


@pytest.fixture(scope="session")
def etcd(backend: ServerBackend) -> EtcdCluster:
    """The etcd, of one member; each test takes the name of a log of its own in it."""
    assert backend.etcd is not None
    return backend.etcd


@pytest.fixture(scope="session")
def guarded_etcd(own_processes: None) -> Iterator[EtcdCluster]:
    """An etcd where `writer` may use the log `allowed`, and no user anything else."""
    with EtcdCluster() as cluster:
        guard(cluster.members[0])
        yield cluster


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of another S3 server, with a bucket called `contract`."""
    port = free_port()
    program = Path(sysconfig.get_path("scripts")) / "moto_server"
    log = tmp_path_factory.mktemp("moto") / "log"
    process = LoggedProcess([str(program), "-H", HOST, "-p", str(port)], log)
    try:
        while not _makes_bucket(port):
            assert process.ended(0.05) is None, log.read_text()
        yield f"http://{HOST}:{port}"
    finally:
        process.kill()


def _makes_bucket(port: int) -> bool:
    connection = HTTPConnection(HOST, port, timeout=30)
    try:
        connection.request("PUT", "/contract")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@pytest.fixture(scope="module")
def proxies() -> Iterator[Proxies]:
    """Proxies before the servers of a module; see `tests/proxies.py`."""
    with Proxies() as made:
        yield made


@pytest.fixture(scope="session")
def own_kafka() -> None:
    """A test that asks for this starts Kafka servers of its own, and belongs to the peers."""


@pytest.fixture(scope="session")
def own_processes() -> None:
    """A test that asks for this starts many processes or an etcd, and belongs to the peers."""


@pytest.fixture(scope="session")
def own_spark() -> None:
    """A test that asks for this starts Spark processes of its own, and belongs to the peers."""


@pytest.fixture(scope="session")
def own_victim() -> None:
    """A test that asks for this kills or pauses processes of its own under load."""


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[KafkaCluster]:
    """Three servers; topics have three replicas unless told otherwise."""
    with KafkaCluster(3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spark_clusters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rookery.toml of Spark's processes: a test adds clusters to it, under names of its own."""
    path = tmp_path_factory.mktemp("clusters") / "rookery.toml"
    path.touch()
    return path


@pytest.fixture(scope="session")
def spark(shared_spark: SparkSession) -> SparkSession:
    """The Spark of the run. Folders whose tests run with the peers override it."""
    return shared_spark


@pytest.fixture(scope="session")
def shared_spark(
    tmp_path_factory: pytest.TempPathFactory, spark_clusters: Path
) -> Iterator[SparkSession]:
    """Spark on two cores of this host; without Java or pyspark a test fails and says so.

    It takes 11 seconds to start, so it is shared: a test uses names of its own for views and
    queries, and stops what it starts.
    """
    from rookery.spark.sparksession import session  # noqa: PLC0415 (few tests need it)

    folder = tmp_path_factory.mktemp("spark")
    # Derby and the launcher leave files in the working folder by default.
    options = f"{QUICK_JAVA} -Dderby.system.home={folder}"
    settings = {
        "spark.driver.extraJavaOptions": options,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROOKERY_CONFIG", str(spark_clusters))  # Java has it from here on, we do not
        # The tests' other processes can keep a stream's planner from loading for ten seconds.
        made = session("tests", "local[2]", settings=settings, tuning="early-connect")
    yield made
    made.stop()


def pytest_configure(config: pytest.Config) -> None:
    """Watch for frozen processes, and let kafka-python be imported.

    It reads its own files in a way that Python 3.11 warns of.
    """
    config.pluginmanager.register(FrozenWatch(), "frozen")
    config.addinivalue_line("filterwarnings", "ignore:.*_text is deprecated:DeprecationWarning")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run choose one tier; without a choice it has all of them."""
    parser.addoption("--tier", choices=list(Tier), help="run the tests of one tier only")


# pytest-xdist reads the groups in a hook of the same name.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the chosen tier, and send those that share a server to one worker."""
    tier = config.getoption("--tier")
    if tier is not None:
        others = [item for item in items if find_tier(item) != tier]
        items[:] = [item for item in items if find_tier(item) == tier]
        config.hook.pytest_deselected(items=others)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(find_group(item)))
        if KAFKA & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.kafka)
    items.sort(key=lambda item: rank_group(find_group(item)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Note for how long the machine was overloaded during a test."""
    before = waited_seconds()
    try:
        return (yield)
    finally:
        item.stash[WAITED] = waited_seconds() - before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Hold a test to its time budget, and show Kafka's output with one that failed."""
    report = yield
    if item.config.getoption("--tier") == Tier.TEST:
        charge(item, report)
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
