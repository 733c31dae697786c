"""TLS and logins on both sides of the proxy, seen by real clients."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from rookery.clock import SystemClock, SystemRandom
from rookery.errors import ConfigError
from rookery.proxy.access.upstreamaccess import UpstreamAccess
from rookery.proxy.filterapi import FORWARD, Filter, FilterContext, Verdict, on_request
from rookery.proxy.settings import ProxySettings, UpstreamSecurity
from rookery.service.listen.listenersettings import ListenerSecurity
from rookery.testing.certificates import Certificates
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from rookery.wire.message import Message
from rookery.wire.messages.metadata import METADATA
from tests.abuse.attack import SIMPLE, Attacker, Door, check_simple, framed, handshake
from tests.broker.secured import PASSWORD, SASL_MECHANISMS, USER, SecuredBroker, serve_secured
from tests.security.tokens import AUDIENCE, ISSUER, Issuer

MECHANISM = "SCRAM-SHA-512"
EDGE_PASSWORD = "edge-secret"  # noqa: S105 (the fixture's)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with serve_secured(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("edge")
    return Certificates.make(folder, "127.0.0.1", "localhost", "*.edge.localhost", client="carol")


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("users") / "users.toml"
    path.touch(mode=0o600)
    path.write_text(f'[erin]\npassword = "{EDGE_PASSWORD}"\n')
    return str(path)


class Principals(Filter):
    """Notes the principals and the names that clients have."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.names: set[tuple[str, int | None]] = set()

    @on_request(METADATA)
    def note(self, context: FilterContext, request: Message) -> Verdict:
        self.seen.add(context.principal)
        self.names.add((context.session.server_name, context.node_id))
        return FORWARD


def scram_upstream(broker: SecuredBroker, password: str = PASSWORD) -> UpstreamSecurity:
    return UpstreamSecurity(
        tls=True,
        ca_file=str(broker.files.ca),
        mechanism=MECHANISM,
        username=USER,
        password=password,
    )


@contextmanager
def served(
    upstream: str, protocol: str = "plaintext", *filters: Filter, **settings: Any
) -> Iterator[ServedProxy]:
    proxy = ServedProxy(upstream, ProxySettings(**settings), filters)
    proxy.settings = replace(proxy.settings, listen=f"{protocol}://{proxy.settings.listen}")
    with proxy:
        yield proxy


def client(proxy: ServedProxy, **extra: object) -> dict[str, Any]:
    return {"bootstrap.servers": proxy.bootstrap, **extra}


def edge_login(files: Certificates, password: str = EDGE_PASSWORD) -> dict[str, object]:
    return {
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(files.ca),
        "sasl.mechanism": MECHANISM,
        "sasl.username": "erin",
        "sasl.password": password,
    }


def produce(config: dict[str, Any], topic: str = "t") -> None:
    producer = Producer(config)
    errors: list[object] = []
    producer.produce(topic, b"value", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(20) == 0
    assert errors == [None]


def test_plain_clients_reach_a_secured_upstream(broker: SecuredBroker) -> None:
    security = scram_upstream(broker)
    with served(broker.address("sasl_ssl"), upstream_security=security) as proxy:
        produce(client(proxy))


@pytest.mark.parametrize("is_upstream_secured", [False, True])
def test_logins_end_at_the_proxy(
    broker: SecuredBroker, files: Certificates, users: str, *, is_upstream_secured: bool
) -> None:
    note = Principals()
    with served(
        broker.address("sasl_ssl" if is_upstream_secured else "plaintext"),
        "sasl_ssl",
        note,
        users_file=users,
        security=ListenerSecurity(certificate_file=str(files.server)),
        upstream_security=scram_upstream(broker) if is_upstream_secured else UpstreamSecurity(),
    ) as proxy:
        produce(client(proxy, **edge_login(files)))

    assert note.seen == {"User:erin"}


def test_wrong_password_is_refused(
    broker: SecuredBroker, files: Certificates, users: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rookery")
    with served(
        broker.address("plaintext"),
        "sasl_ssl",
        users_file=users,
        security=ListenerSecurity(certificate_file=str(files.server)),
    ) as proxy:
        admin = AdminClient(client(proxy, **edge_login(files, "wrong")))
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=1)
        # Its first login can take longer on a busy host.
        wait_until(lambda: "login failed" in caplog.text)

    assert "login of User:erin" not in caplog.text


def test_certificates_name_the_client(broker: SecuredBroker, files: Certificates) -> None:
    note = Principals()
    security = ListenerSecurity(
        certificate_file=str(files.server),
        client_ca_file=str(files.ca),
        client_auth="required",
        principal_mapping_rules="RULE:^.*CN=([a-z]+).*$/$1/",
    )
    with served(broker.address("plaintext"), "ssl", note, security=security) as proxy:
        tls = {"security.protocol": "ssl", "ssl.ca.location": str(files.ca)}
        own = str(files.client)
        identity = {"ssl.certificate.location": own, "ssl.key.location": own}
        produce(client(proxy, **tls, **identity))

    assert note.seen == {"User:carol"}


def test_logins_pass_through(broker: SecuredBroker) -> None:
    with served(broker.address("sasl_plaintext")) as proxy:
        assert proxy.proxy.clusters[0].trouble == ""
        login = broker.librdkafka("sasl_plaintext", MECHANISM)
        produce(login | client(proxy))


def test_untrusted_broker_certificate_is_refused(broker: SecuredBroker, tmp_path: Path) -> None:
    other = Certificates.make(tmp_path, "127.0.0.1")
    security = replace(scram_upstream(broker), ca_file=str(other.ca))
    with (
        served(broker.address("sasl_ssl"), upstream_security=security) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), 20) as stream,
    ):
        assert "certificate is refused" in proxy.proxy.clusters[0].trouble
        stream.sendall(bytes.fromhex("0000000a00120000000000070000"))
        assert stream.recv(1) == b""


def test_broker_certificate_for_another_host_is_refused(tmp_path: Path) -> None:
    other = Certificates.make(tmp_path / "other", "elsewhere.test")
    with (
        serve_secured(tmp_path, certificate_file=str(other.server)) as broker,
        served(
            broker.address("ssl"),
            upstream_security=UpstreamSecurity(tls=True, ca_file=str(other.ca)),
        ) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), 20) as stream,
    ):
        trouble = proxy.proxy.clusters[0].trouble
        assert "certificate is refused" in trouble
        assert "127.0.0.1" in trouble
        stream.sendall(bytes.fromhex("0000000a00120000000000070000"))
        assert stream.recv(1) == b""


def test_certificate_of_the_proxy_is_its_identity_at_the_upstream(tmp_path: Path) -> None:
    rules = "RULE:^.*CN=([a-z]+).*$/$1/"
    with serve_secured(tmp_path, client_auth="required", principal_mapping_rules=rules) as broker:
        nameless = UpstreamSecurity(tls=True, ca_file=str(broker.files.ca))
        own = replace(nameless, certificate_file=str(broker.files.client))
        with served(broker.address("ssl"), upstream_security=nameless) as proxy:
            assert proxy.proxy.clusters[0].trouble
        with served(broker.address("ssl"), upstream_security=own) as proxy:
            assert proxy.proxy.clusters[0].trouble == ""
            principals = seen_principals(broker, proxy)

    assert principals == {f"User:{USER}"}


def seen_principals(broker: SecuredBroker, proxy: ServedProxy) -> set[str | None]:
    """Produce through the proxy; return the users whom the broker sees meanwhile."""
    producer = Producer(client(proxy))
    producer.produce("t", b"value")
    assert producer.flush(20) == 0
    return {
        connection.session.principal
        for listener in broker.broker.ports.listeners
        for connection in listener.connections
    }


@pytest.mark.parametrize("mechanism", SASL_MECHANISMS)
def test_proxy_logs_in_with_any_mechanism(broker: SecuredBroker, mechanism: str) -> None:
    security = replace(scram_upstream(broker), mechanism=mechanism)
    with served(broker.address("sasl_ssl"), upstream_security=security) as proxy:
        assert f"User:{USER}" in seen_principals(broker, proxy)


def test_proxy_logs_in_with_the_token_that_its_file_has_now(tmp_path: Path) -> None:
    issuer = Issuer(SystemClock().now_ms())
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text(issuer.token(sub="first"))
    with serve_secured(
        tmp_path,
        mechanisms="OAUTHBEARER",
        oauth_jwks=str(issuer.write(tmp_path / "jwks.json")),
        oauth_issuer=ISSUER,
        oauth_audience=AUDIENCE,
    ) as broker:
        security = UpstreamSecurity(
            tls=True,
            ca_file=str(broker.files.ca),
            mechanism="OAUTHBEARER",
            token_file=str(token),
        )
        with served(broker.address("sasl_ssl"), upstream_security=security) as proxy:
            assert "User:first" in seen_principals(broker, proxy)
            token.write_text(issuer.token(sub="second"))

            assert "User:second" in seen_principals(broker, proxy)


def test_wrong_upstream_password_is_reported(broker: SecuredBroker) -> None:
    security = scram_upstream(broker, "wrong")
    with served(broker.address("sasl_ssl"), upstream_security=security) as proxy:
        assert f"refused user '{USER}'" in proxy.proxy.clusters[0].trouble


def test_broker_that_refuses_the_proxy_is_not_an_error_of_each_client(
    broker: SecuredBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The health reports the cause once; for clients, the broker is away."""
    security = scram_upstream(broker)
    with served(broker.address("sasl_ssl"), upstream_security=security) as proxy:
        [cluster] = proxy.proxy.clusters
        [node] = cluster.nodes.values()
        other = Certificates.make(tmp_path, "127.0.0.1")
        refusing = replace(security, ca_file=str(other.ca))

        async def change_authority() -> None:
            limits, share = proxy.settings, proxy.proxy.share
            access = UpstreamAccess(refusing, limits, share.chunks, SystemRandom())
            cluster.brokers.access = access

        proxy.do(change_authority())
        with socket.create_connection(("127.0.0.1", node.port), 20) as stream:
            stream.sendall(bytes.fromhex("0000000a00120000000000070000"))
            assert stream.recv(1) == b""

    assert [row for row in caplog.records if row.levelname == "ERROR"] == []


def test_missing_upstream_login_is_found_at_the_start(
    broker: SecuredBroker, files: Certificates, users: str
) -> None:
    security = ListenerSecurity(certificate_file=str(files.server))
    upstream = broker.address("sasl_plaintext")
    with (
        pytest.raises(ConfigError, match="wants a login"),
        served(upstream, "sasl_ssl", users_file=users, security=security),
    ):
        pass


def test_nothing_passes_before_the_login(
    broker: SecuredBroker, files: Certificates, users: str
) -> None:
    with (
        served(broker.address("plaintext"), "sasl_plaintext", users_file=users) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), 20) as stream,
    ):
        stream.sendall(bytes.fromhex("0000000e00030001000000070000ffffffff"))
        assert stream.recv(1) == b""


def test_request_before_the_end_of_a_connection_is_answered(
    broker: SecuredBroker, users: str
) -> None:
    """A second login by another mechanism ends the connection, after the responses in flight."""
    security = ListenerSecurity(mechanisms="PLAIN,SCRAM-SHA-512")
    with (
        served(
            broker.address("plaintext"), "sasl_plaintext", users_file=users, security=security
        ) as proxy,
        Attacker(Door(proxy.port, user="erin", password=EDGE_PASSWORD)) as line,
    ):
        line.send(framed(handshake(b"SCRAM-SHA-512")) + SIMPLE)

        refusal, versions = line.read(), line.read()

        assert refusal is not None
        assert versions is not None
        check_simple(versions)
        assert line.read() is None


def test_names_choose_the_broker(broker: SecuredBroker, files: Certificates) -> None:
    note = Principals()
    with served(
        broker.address("plaintext"),
        "ssl",
        note,
        security=ListenerSecurity(certificate_file=str(files.server)),
        node_names="broker-$(node_id).edge.localhost",
    ) as proxy:
        tls = {"security.protocol": "ssl", "ssl.ca.location": str(files.ca)}
        brokers = AdminClient(client(proxy, **tls)).list_topics(timeout=20).brokers
        [(node_id, row)] = brokers.items()
        name = f"broker-{node_id}.edge.localhost"
        assert f"{row.host}:{row.port}" == f"{name}:{proxy.port}"

        context = ssl.create_default_context(cafile=str(files.ca))
        with (
            socket.create_connection(("127.0.0.1", proxy.port), 20) as plain,
            context.wrap_socket(plain, server_hostname=name) as stream,
        ):
            stream.sendall(bytes.fromhex("0000000e00030001000000070000ffffffff"))
            assert stream.recv(4)
        assert (name, node_id) in note.names
        assert any(node is None for _, node in note.names)
        with (
            socket.create_connection(("127.0.0.1", proxy.port), 20) as plain,
            # Whether the alert arrives before the end depends on the event loop.
            pytest.raises((ssl.SSLError, ConnectionError)),
        ):
            context.wrap_socket(plain, server_hostname="broker-9999.edge.localhost")


def test_logins_at_the_upstream_are_renewed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rookery")
    with (
        serve_secured(tmp_path, max_session_ms=500) as broker,
        served(broker.address("sasl_ssl"), upstream_security=scram_upstream(broker)) as proxy,
    ):
        producer = Producer(client(proxy))

        def is_renewed() -> bool:
            producer.produce("t", b"value")
            assert producer.flush(20) == 0
            peers = [
                getattr(line, "client", "")
                for line in caplog.records
                if line.msg.startswith("login of")
            ]
            return any(peers.count(peer) >= 3 for peer in peers)

        wait_until(is_renewed)
        assert "whose login ends" not in caplog.text
