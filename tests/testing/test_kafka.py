"""The test kit's Kafka: start, stop, kill and tools."""

from __future__ import annotations

import os
import re
import select
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

# kafka-python ships no types
from kafka import TopicPartition

from rookery.errors import ConfigError, Unavailable
from rookery.testing.certificates import Certificates
from rookery.testing.java import TOOLS
from rookery.testing.kafka import KafkaCluster, KafkaServer
from rookery.testing.properties import LISTENERS, PASSWORD_MECHANISMS, KafkaSettings, write
from tests.kafkapython import KafkaAdminClient, KafkaConsumer, KafkaProducer

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("own_kafka")]


@pytest.fixture(scope="module")
def own() -> Iterator[KafkaServer]:
    """A server that a test may stop and kill, and leaves running."""
    with KafkaServer() as server:
        yield server


def _produce(server: KafkaServer, topic: str, values: list[bytes]) -> None:
    producer = KafkaProducer(bootstrap_servers=server.bootstrap, acks="all")
    for value in values:
        producer.send(topic, value, partition=0).get(timeout=30)
    producer.close()


def _consume(server: KafkaServer, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=server.bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    values = [next(consumer).value for _ in range(count)]
    consumer.close()
    return values


def _cluster_id(server: KafkaServer, listener: str = "PLAINTEXT", **settings: object) -> str:
    admin = KafkaAdminClient(
        bootstrap_servers=server.address(listener),
        security_protocol=listener,
        **settings,
    )
    cluster_id = admin.describe_cluster()["cluster_id"]
    admin.close()
    return str(cluster_id)


def test_other_client_connects_to_the_server(kafka: KafkaServer) -> None:
    assert _cluster_id(kafka) == kafka.cluster_id


def test_tools_connect_to_the_server(kafka: KafkaServer) -> None:
    done = kafka.tool("kafka-broker-api-versions", "--bootstrap-server", kafka.bootstrap)

    assert (done.returncode, done.stderr) == (0, "")
    assert "Produce(0): 0 to 13" in done.stdout


def test_a_tool_reads_its_input(kafka: KafkaServer) -> None:
    where = ["--bootstrap-server", kafka.bootstrap, "--topic", "typed"]

    done = kafka.tool("kafka-console-producer", *where, text="one\ntwo\n")

    assert done.returncode == 0, done.stderr
    read = kafka.tool("kafka-console-consumer", *where, "--from-beginning", "--max-messages", "2")
    assert sorted(read.stdout.split()) == ["one", "two"]


def test_every_tool_has_its_class_in_the_jars(kafka: KafkaServer) -> None:
    names: set[str] = set()
    for jar in kafka.jars.glob("kafka[-_]*.jar"):
        names.update(ZipFile(jar).namelist())

    missing = [name for name in TOOLS.values() if name.replace(".", "/") + ".class" not in names]

    assert missing == []


def test_a_restart_keeps_ports_and_data(own: KafkaServer) -> None:
    _produce(own, "kept", [b"a", b"b"])
    address, pid = own.bootstrap, own.pid

    own.restart()

    assert (own.bootstrap, own.pid == pid) == (address, False)
    assert _consume(own, "kept", 2) == [b"a", b"b"]


def test_killed_server_can_be_started_again(own: KafkaServer) -> None:
    _produce(own, "survives", [b"a", b"b"])
    pid = own.pid

    own.kill()

    assert not own.is_running
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    own.start()
    assert _consume(own, "survives", 2) == [b"a", b"b"]


def test_own_folder_is_removed_and_a_given_one_kept(tmp_path: Path) -> None:
    servers = [KafkaServer(), KafkaServer(folder=tmp_path)]
    folders = [server.log.parent for server in servers]
    before = [folder.exists() for folder in folders]

    for server in servers:
        server.close()

    assert (before, [folder.exists() for folder in folders]) == ([True, True], [False, True])


def test_a_server_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    wrong = KafkaSettings(properties={"log.segment.bytes": "many"})
    server = KafkaServer(wrong, folder=tmp_path)

    with pytest.raises(Unavailable, match=r"log\.segment\.bytes"):
        server.start()

    assert not server.is_running


def test_a_server_that_dies_while_starting_shows_its_log(own: KafkaServer, tmp_path: Path) -> None:
    ends = f"PLAINTEXT://{own.bootstrap},CONTROLLER://{own.address('CONTROLLER')}"
    server = KafkaServer(KafkaSettings(properties={"listeners": ends}), folder=tmp_path)

    with pytest.raises(Unavailable, match="Address already in use"):
        server.start()


@pytest.mark.parametrize("listener", [name for name in LISTENERS if name.startswith("SASL")])
@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_users_log_in(kafka_secure: KafkaServer, listener: str, mechanism: str) -> None:
    login = {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": kafka_secure.users["alice"],
        "ssl_cafile": str(kafka_secure.certificates.ca),
    }

    assert _cluster_id(kafka_secure, listener, **login) == kafka_secure.cluster_id


def _tls(server: KafkaServer, identity: Certificates) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(server.certificates.ca))
    context.load_cert_chain(identity.client)
    return context


def test_client_can_present_its_certificate(kafka_secure: KafkaServer) -> None:
    context = _tls(kafka_secure, kafka_secure.certificates)

    assert _cluster_id(kafka_secure, "SSL", ssl_context=context) == kafka_secure.cluster_id


def test_a_certificate_of_another_authority_is_refused(
    kafka_secure: KafkaServer, tmp_path: Path
) -> None:
    context = _tls(kafka_secure, Certificates.make(tmp_path, "localhost"))

    with (
        socket.create_connection(("127.0.0.1", kafka_secure.port("SSL"))) as plain,
        pytest.raises(ssl.SSLError, match=r"(?i)alert"),
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        secure.recv(1)


def _list_topics(server: KafkaServer, listener: str, settings: dict[str, str], file: Path) -> str:
    write(file, {"security.protocol": listener, **settings})
    where = ["--bootstrap-server", server.address(listener), "--command-config", str(file)]
    done = server.tool("kafka-topics", "--list", *where)
    return f"{done.returncode} {done.stdout} {done.stderr}"


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_a_wrong_password_is_refused(
    kafka_secure: KafkaServer, mechanism: str, tmp_path: Path
) -> None:
    kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    module = f"org.apache.kafka.common.security.{kind}LoginModule required"
    login = {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} username="alice" password="wrong";',
    }

    said = _list_topics(kafka_secure, "SASL_PLAINTEXT", login, tmp_path / "client.properties")

    assert said.startswith("1 ")
    assert "SaslAuthenticationException" in said


def test_a_cluster_elects_a_new_leader_when_one_is_killed(kafka_cluster: KafkaCluster) -> None:
    topic = ["--bootstrap-server", kafka_cluster.bootstrap, "--topic", "led"]
    kafka_cluster.tool("kafka-topics", "--create", *topic, "--partitions", "1")
    leader = _leader(kafka_cluster, topic, unlike=0)

    kafka_cluster.node(leader).kill()

    assert _leader(kafka_cluster, topic, unlike=leader) in {1, 2, 3} - {leader}
    kafka_cluster.start()
    assert all(node.is_running for node in kafka_cluster.nodes)


def _leader(cluster: KafkaCluster, topic: list[str], *, unlike: int) -> int:
    while True:  # ended by the test's timeout
        told = cluster.tool("kafka-topics", "--describe", *topic).stdout
        leader = re.search(r"Leader: (\d+)\s+Replicas: \d,\d,\d", told)
        if leader and int(leader[1]) != unlike:
            return int(leader[1])


def test_invalid_settings_are_named() -> None:
    with pytest.raises(ConfigError, match="SASL_TLS"):
        KafkaSettings(listeners=("SASL_TLS",))
    with pytest.raises(ConfigError, match="users"):
        KafkaSettings(users={"bob": 'quo"te'})


_ORPHAN_MAKER = """
import os, signal, sys
from pathlib import Path
from rookery.testing.process import LoggedProcess
print(LoggedProcess(["sleep", "1000"], Path(os.devnull)).pid, flush=True)
sys.stdin.read()
"""


def test_program_ends_with_its_parent() -> None:
    maker = subprocess.Popen(
        [sys.executable, "-c", _ORPHAN_MAKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with maker:
        assert maker.stdout is not None
        orphan = os.pidfd_open(int(maker.stdout.readline()))

        maker.kill()

    ended, _, _ = select.select([orphan], [], [], 20)
    os.close(orphan)
    assert ended
