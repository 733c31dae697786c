"""Listeners, certificates, logins and rules of Kafka's `server.properties`."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rookery.broker.process.kafkafile import KafkaFile, read_kafka_file
from rookery.broker.settings import BrokerSettings
from rookery.client.client import Client
from rookery.client.settings import ClientSettings, Sasl
from rookery.config.load import load
from rookery.errors import ApiError, ConfigError
from rookery.formats.logfile.properties import format_properties
from rookery.security.tls import ClientTls, KeyPair
from rookery.service.listen.listenersettings import ListenerConfig
from rookery.testing.certificates import Certificates
from rookery.testing.ports import HOST
from tests.broker.secured import PASSWORD, USER, SecuredBroker
from tests.logdir.made import make_directory
from tests.security.test_keystore import STORE_PASSWORD, write_authorities, write_store

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:admin;User:{USER}",
}
HANDLER = "sasl.server.callback.handler.class"
SCRAM = {"sasl.enabled.mechanisms": "SCRAM-SHA-256"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("kafkafile"), HOST, client=USER)


def read(folder: Path, values: Mapping[str, str]) -> KafkaFile:
    """Read a file with these values."""
    path = folder / "server.properties"
    path.write_text(format_properties({"log.dirs": str(folder / "logs"), **values}))
    return read_kafka_file(path)


def settings_from(file: KafkaFile) -> BrokerSettings:
    return load(BrokerSettings, "broker", environ={}, more=file.given).settings


def listeners(folder: Path, values: Mapping[str, str]) -> dict[str, ListenerConfig]:
    return settings_from(read(folder, values)).client_listeners()


# Which listeners are served.


def test_several_listeners_become_tables(tmp_path: Path) -> None:
    tables = listeners(
        tmp_path,
        {
            "listeners": "CONTROLLER://:9093,INSIDE://127.0.0.1:9092,outside://0.0.0.0:9094",
            "advertised.listeners": "INSIDE://inside:9092,OUTSIDE://kafka.example.org:19094",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": (
                "CONTROLLER:SSL,INSIDE:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT"
            ),
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
            "connections.max.reauth.ms": "3600000",
        },
    )

    assert tables == {
        "INSIDE": ListenerConfig(listen="127.0.0.1:9092", advertise="inside:9092"),
        "OUTSIDE": ListenerConfig(
            listen="sasl_plaintext://0.0.0.0:9094",
            advertise="kafka.example.org:19094",
            mechanisms="SCRAM-SHA-512,PLAIN",
            max_session_ms=3_600_000,
        ),
    }


def test_listener_of_brokers_is_left_out(tmp_path: Path) -> None:
    file = read(
        tmp_path,
        {
            "listeners": "REPLICATION://10.0.0.5:9091,PLAINTEXT://127.0.0.1:9092",
            "listener.security.protocol.map": "REPLICATION:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "REPLICATION",
        },
    )

    assert settings_from(file).listen == "127.0.0.1:9092"
    assert any("REPLICATION is not served" in line for line in file.warnings)
    # A broker's only listener is for clients, too.
    values = {"listeners": "PLAINTEXT://127.0.0.1:1", "inter.broker.listener.name": "PLAINTEXT"}
    assert list(listeners(tmp_path, values)) == ["PLAINTEXT"]


def test_settings_of_one_listener_precede_those_of_the_broker(tmp_path: Path) -> None:
    tables = listeners(
        tmp_path,
        {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:1,SASL_SSL://127.0.0.1:2",
            "sasl.enabled.mechanisms": "GSSAPI",
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.sasl_ssl.ssl.keystore.location": "/tls/own.pem",
            "listener.name.sasl_ssl.connections.max.reauth.ms": "5000",
            "ssl.keystore.location": "/tls/all.pem",
            "ssl.keystore.type": "PEM",
            "ssl.key.password": "hidden",
        },
    )

    assert tables["SASL_PLAINTEXT"].mechanisms == "PLAIN"
    own = tables["SASL_SSL"]
    assert (own.mechanisms, own.max_session_ms) == ("SCRAM-SHA-256", 5000)
    assert (own.certificate_file, own.key_password) == ("/tls/own.pem", "hidden")


def test_client_auth_of_the_broker_is_not_for_listeners_with_logins(tmp_path: Path) -> None:
    # As in Kafka.
    values = {
        "listeners": "SASL_SSL://127.0.0.1:1,SSL://127.0.0.1:2",
        "ssl.client.auth": "required",
        "ssl.keystore.location": "/tls/server.pem",
        "ssl.truststore.location": "/tls/ca.pem",
        **SCRAM,
    }
    tables = listeners(tmp_path, values)
    assert {name: table.client_auth for name, table in tables.items()} == {
        "SASL_SSL": "none",
        "SSL": "required",
    }
    own = {"listener.name.sasl_ssl.ssl.client.auth": "requested"}
    assert listeners(tmp_path, values | own)["SASL_SSL"].client_auth == "requested"


def test_tokens(tmp_path: Path) -> None:
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    place = f"listener.name.sasl_plaintext.oauthbearer.{HANDLER}"
    table = listeners(
        tmp_path,
        {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:1",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": "file:///etc/keys.json",
            "sasl.oauthbearer.expected.issuer": "https://issuer.example.org",
            "sasl.oauthbearer.expected.audience": "kafka",
            "sasl.oauthbearer.sub.claim.name": "name",
            place: handler,
        },
    )["SASL_PLAINTEXT"]

    assert (table.oauth_jwks, table.oauth_issuer) == (
        "/etc/keys.json",
        "https://issuer.example.org",
    )
    assert (table.oauth_audience, table.oauth_user_claim) == ("kafka", "name")


def test_rules_of_access(tmp_path: Path) -> None:
    settings = settings_from(
        read(tmp_path, {**AUTHORIZER, "allow.everyone.if.no.acl.found": "true"})
    )
    assert (settings.authorizer, settings.super_users) == ("acls", f"User:admin;User:{USER}")
    assert settings.allow_everyone_if_no_acl
    assert settings_from(read(tmp_path, {})).authorizer == "none"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"listeners": "SASL_SSL://:1", **SCRAM}, "needs a certificate"),
        ({"listeners": "SASL_PLAINTEXT://:1"}, "cannot offer GSSAPI; set listener.name.sasl_plain"),
        (
            {"listeners": "SASL_PLAINTEXT://:1", "sasl.enabled.mechanisms": "PLAIN,GSSAPI"},
            "cannot offer GSSAPI",
        ),
        ({"listeners": "OUT://:1"}, "no protocol for the listener OUT"),
        ({"authorizer.class.name": "com.example.Own"}, "com.example.Own is a plugin"),
        ({"principal.builder.class": "com.example.Own"}, "plugins are not supported"),
        (
            {"listeners": "SSL://:1", "ssl.engine.factory.class": "com.example.Own"},
            "plugins are not supported",
        ),
        (
            {
                "listeners": "SASL_PLAINTEXT://:1",
                f"listener.name.sasl_plaintext.scram-sha-256.{HANDLER}": "com.example.Own",
                **SCRAM,
            },
            "plugins are not supported",
        ),
        (
            {"listeners": "SSL://:1", "ssl.keystore.location": "x", "ssl.client.auth": "required"},
            "set ssl.truststore.location",
        ),
        (
            {"listeners": "SSL://:1", "ssl.keystore.location": "${file:/x:y}"},
            "configuration providers are not supported",
        ),
    ],
)
def test_what_cannot_be_served_is_refused(
    tmp_path: Path, values: dict[str, str], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        read(tmp_path, values)


def test_users_of_plain_are_reported_without_their_passwords(tmp_path: Path) -> None:
    file = read(
        tmp_path,
        {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:1",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                "org.apache.kafka.common.security.plain.PlainLoginModule required "
                'username="admin" password="hidden" user_admin="hidden" user_bob="hidden";'
            ),
            "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256",
        },
    )

    told = "\n".join(file.warnings)
    assert "admin, bob" in told
    assert "hidden" not in told
    assert "have no effect: ssl.cipher.suites" in told


# A client of each kind of certificate and login.


@contextmanager
def serving(
    folder: Path, files: Certificates, protocol: str, values: Mapping[str, str]
) -> Iterator[SecuredBroker]:
    """Serve a directory with the settings of a file, and with the user alice."""
    make_directory(folder / "logs", {"birds": [[b"owl"]]})
    places = {"listeners": f"PLAINTEXT://{HOST}:0,{protocol}://{HOST}:0"}
    settings = replace(settings_from(read(folder, {**places, **values})), durability="os")
    with SecuredBroker(folder / "unused", settings, files) as broker:
        broker.add_user(USER, PASSWORD)
        yield broker


async def records_of(settings: ClientSettings) -> int:
    async with Client(settings) as client:
        return len([record async for record in client.read("birds", 0)])


def stores(folder: Path, files: Certificates, kind: str) -> dict[str, str]:
    """Return the settings of the same certificates in one of their forms."""
    if kind == "inline":
        text = files.server.read_text()
        at = text.index("-----BEGIN CERTIFICATE")
        return {
            "ssl.keystore.type": "PEM",
            # On one line, as a file of properties has it.
            "ssl.keystore.key": text[:at].replace("\n", " "),
            "ssl.keystore.certificate.chain": text[at:].replace("\n", " "),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": files.ca.read_text(),
        }
    if kind == "PKCS12":
        return {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": write_store(files.server, folder / "server.p12"),
            "ssl.keystore.password": STORE_PASSWORD,
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": write_authorities(files.ca, folder / "ca.p12"),
            "ssl.truststore.password": STORE_PASSWORD,
        }
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.server),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.ca),
    }


@pytest.mark.parametrize("kind", ["PEM", "inline", "PKCS12"])
async def test_user_logs_in_over_tls(tmp_path: Path, files: Certificates, kind: str) -> None:
    values = {**stores(tmp_path, files, kind), **SCRAM, **AUTHORIZER}
    with serving(tmp_path, files, "SASL_SSL", values) as broker:
        tls = ClientTls(ca_file=str(files.ca))
        address = broker.address("SASL_SSL")
        good = Sasl("SCRAM-SHA-256", USER, PASSWORD)
        assert await records_of(ClientSettings(bootstrap=address, tls=tls, sasl=good)) == 1
        # A client of the other listener has no rights.
        with pytest.raises(ApiError):
            await records_of(ClientSettings(bootstrap=broker.address("PLAINTEXT")))


@pytest.mark.parametrize("kind", ["PEM", "inline", "PKCS12"])
async def test_certificate_of_a_client_names_its_user(
    tmp_path: Path, files: Certificates, kind: str
) -> None:
    values = {
        **stores(tmp_path, files, kind),
        **AUTHORIZER,
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^.*CN=([a-z]+).*$/$1/,DEFAULT",
    }
    with serving(tmp_path, files, "SSL", values) as broker:
        tls = ClientTls(ca_file=str(files.ca), own=KeyPair(str(files.client)))
        assert await records_of(ClientSettings(bootstrap=broker.address("SSL"), tls=tls)) == 1


def test_connections_of_one_host_are_limited(tmp_path: Path, files: Certificates) -> None:
    values = {"max.connections.per.ip": "1", **SCRAM}
    with serving(tmp_path, files, "SASL_PLAINTEXT", values) as broker:
        host, _, port = broker.address("PLAINTEXT").rpartition(":")
        _, _, other = broker.address("SASL_PLAINTEXT").rpartition(":")
        with (
            socket.create_connection((host, int(port)), 30),
            socket.create_connection((host, int(other)), 30) as second,
        ):
            assert second.recv(1) == b""
