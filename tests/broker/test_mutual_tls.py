"""Client certificates: the principal that a listener with TLS gives to its clients."""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from confluent_kafka.admin import AdminClient

from rookery.client.client import Client
from rookery.client.settings import ClientSettings
from rookery.errors import ConfigError, Unavailable
from rookery.security.tls import ClientTls, KeyPair
from rookery.testing.certificates import Certificates
from tests.broker.secured import HOST, USER, SecuredBroker, serve_secured


def settings(broker: SecuredBroker, own: Path | None) -> ClientSettings:
    tls = ClientTls(ca_file=str(broker.files.ca), own=KeyPair(str(own)) if own else None)
    return ClientSettings(bootstrap=broker.address("ssl"), tls=tls, call_timeout_ms=2_000)


def principals(broker: SecuredBroker) -> set[str | None]:
    """Return the principals of the clients that are connected with TLS."""

    async def read() -> set[str | None]:
        return {
            connection.session.principal
            for listener in broker.broker.ports.listeners
            for connection in listener.connections
            if connection.session.listener == "ssl"
        }

    return broker.do(read())


async def test_certificate_gives_the_principal(tmp_path: Path) -> None:
    rules = r"RULE:^CN=([^,]+),.*$/$1/L, DEFAULT"
    with serve_secured(tmp_path, principal_mapping_rules=rules) as broker:
        async with Client(settings(broker, broker.files.client)) as client:
            await client.admin.describe_cluster()
            assert principals(broker) == {f"User:{USER}"}


async def test_whole_name_is_the_principal_by_default(tmp_path: Path) -> None:
    with serve_secured(tmp_path, client_auth="required") as broker:
        async with Client(settings(broker, broker.files.client)) as client:
            await client.admin.describe_cluster()
            [principal] = principals(broker)
    assert principal is not None
    assert principal.startswith(f"User:CN={USER},OU=")


async def test_client_without_a_certificate_is_anonymous(tmp_path: Path) -> None:
    with serve_secured(tmp_path) as broker:
        async with Client(settings(broker, None)) as client:
            await client.admin.describe_cluster()
            assert principals(broker) == {"User:ANONYMOUS"}


async def test_required_certificate_must_be_presented(tmp_path: Path) -> None:
    with serve_secured(tmp_path, client_auth="required") as broker:
        async with Client(settings(broker, None)) as client:
            with pytest.raises(Unavailable):
                await client.admin.describe_cluster()
        assert principals(broker) == set()


async def test_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    others = Certificates.make(tmp_path / "others", "127.0.0.1", client=USER)
    with serve_secured(tmp_path) as broker:
        async with Client(settings(broker, others.client)) as client:
            with pytest.raises(Unavailable):
                await client.admin.describe_cluster()


@pytest.mark.parametrize("days", [-1, 1], ids=["expired", "valid"])
async def test_expired_certificate_is_refused(tmp_path: Path, days: int) -> None:
    authority, end = trustme.CA(), datetime.now(UTC) + timedelta(days=days)
    leaf = authority.issue_cert("alice@localhost", not_before=end - timedelta(9), not_after=end)
    ca, own = tmp_path / "clients.pem", tmp_path / "own.pem"
    authority.cert_pem.write_to_path(str(ca))
    leaf.private_key_and_cert_chain_pem.write_to_path(str(own))
    with serve_secured(tmp_path, client_ca_file=str(ca)) as broker:
        async with Client(settings(broker, own)) as client:
            if days > 0:
                await client.admin.describe_cluster()
                return
            with pytest.raises(Unavailable):
                await client.admin.describe_cluster()
        assert principals(broker) == set()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("has_certificate", [True, False])
def test_refused_client_receives_an_alert(
    tmp_path: Path, version: ssl.TLSVersion, *, has_certificate: bool
) -> None:
    others = Certificates.make(tmp_path / "others", HOST, client=USER)
    with serve_secured(tmp_path, client_auth="required") as broker:
        context = broker.trust()
        context.minimum_version = context.maximum_version = version
        if has_certificate:
            context.load_cert_chain(others.client)
        host, _, port = broker.address("ssl").rpartition(":")
        with (
            socket.create_connection((host, int(port)), 20) as connection,
            pytest.raises(ssl.SSLError, match=r"(?i)alert"),
            context.wrap_socket(connection, server_hostname=host) as stream,
        ):
            # With TLS 1.3, the client's half of the handshake ends before the server's.
            stream.recv(1)


async def test_certificate_that_no_rule_matches_is_refused(tmp_path: Path) -> None:
    rules = "RULE:^CN=admin,.*$/admin/"
    with serve_secured(tmp_path, principal_mapping_rules=rules) as broker:
        async with Client(settings(broker, broker.files.client)) as client:
            with pytest.raises(Unavailable):
                await client.admin.describe_cluster()


def test_librdkafka_presents_its_certificate(tmp_path: Path) -> None:
    with serve_secured(tmp_path, client_auth="required") as broker:
        own = str(broker.files.client)
        config = broker.librdkafka("ssl")
        config |= {"ssl.certificate.location": own, "ssl.key.location": own}
        client = AdminClient(config)
        assert len(client.list_topics(timeout=20).brokers) == 1
        assert all(str(name).startswith(f"User:CN={USER}") for name in principals(broker))


def test_invalid_rule_is_an_error_at_the_start(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"),
        serve_secured(tmp_path, principal_mapping_rules="RULE:^CN=(/x/"),
    ):
        pass
