"""Java's client.properties for our own client."""

from __future__ import annotations

from pathlib import Path

import pytest

from rookery.client.properties import parse_client_properties, read_client_properties
from rookery.client.settings import Sasl
from rookery.errors import ConfigError
from rookery.security.tls import ClientTls, KeyPair

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SASL_SSL = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": f'{SCRAM} required username="alice" password="secret";',
}


def test_file_of_a_secured_cluster_is_read(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "# how to reach the cluster\n"
        "bootstrap.servers=a:9093,b:9093\n"
        "client.id = reports\n"
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.jaas.config={SCRAM} required \\\n"
        '    username="alice" password="secret";\n'
        "ssl.truststore.type=PEM\n"
        "ssl.truststore.location=/etc/ca.pem\n"
        "acks=all\n"
    )
    settings = read_client_properties(path).settings()
    assert settings.bootstrap == "a:9093,b:9093"
    assert settings.client_id == "reports"
    assert settings.tls == ClientTls(ca_file="/etc/ca.pem")
    assert settings.sasl == Sasl("SCRAM-SHA-512", "alice", "secret")


@pytest.mark.parametrize(
    ("text", "password"),
    [
        (f'{SCRAM} required username="alice" password="secret";', "secret"),
        (f'  {SCRAM}  REQUIRED\n username = "alice"\n password="a b;c=d" ; ', "a b;c=d"),
        (f'{SCRAM} required username=alice password="quote \\" and \\\\";', 'quote " and \\'),
        (f'{SCRAM} required password=secret username="alice" extra="1";', "secret"),
    ],
)
def test_login_is_read_from_the_jaas_text(text: str, password: str) -> None:
    parsed = parse_client_properties(SASL_SSL | {"sasl.jaas.config": text})
    assert parsed.sasl == Sasl("SCRAM-SHA-512", "alice", password)


def test_plain_login_is_read() -> None:
    values = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required username="alice" password="secret";',
    }
    parsed = parse_client_properties(values)
    assert (parsed.tls, parsed.sasl) == (None, Sasl("PLAIN", "alice", "secret"))


@pytest.mark.parametrize("value", ["true", '"TRUE"'])
def test_login_with_a_delegation_token_is_read(value: str) -> None:
    login = f'{SCRAM} required username="id" password="hmac" tokenauth={value};'
    sasl = parse_client_properties(SASL_SSL | {"sasl.jaas.config": login}).sasl
    assert sasl == Sasl("SCRAM-SHA-512", "id", "hmac", is_delegation_token=True)


def test_token_is_read_from_a_file() -> None:
    values = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "file:///run/token",
    }
    sasl = parse_client_properties(values).sasl
    assert sasl is not None
    assert (sasl.mechanism, sasl.token_file) == ("OAUTHBEARER", "/run/token")


def test_stores_in_pem_form_are_used() -> None:
    values = {
        "security.protocol": "ssl",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----",
        "ssl.keystore.type": "pem",
        "ssl.keystore.location": "/etc/alice.pem",
        "ssl.key.password": "key-secret",
        "ssl.endpoint.identification.algorithm": "",
    }
    assert parse_client_properties(values).tls == ClientTls(
        ca_data="-----BEGIN CERTIFICATE-----",
        own=KeyPair("/etc/alice.pem", None, "key-secret"),
        check_hostname=False,
    )


def test_plaintext_needs_no_settings() -> None:
    parsed = parse_client_properties({"bootstrap.servers": "a:9092"})
    assert (parsed.tls, parsed.sasl, parsed.settings().bootstrap) == (None, None, "a:9092")
    assert parsed.settings("b:9092").bootstrap == "b:9092"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"security.protocol": "TLS"}, "security.protocol: choose one of"),
        ({"ssl.truststore.location": "x.jks"}, "ssl.truststore.location: a store of type JKS"),
        (
            {"ssl.keystore.location": "x.p12", "ssl.keystore.type": "PKCS12"},
            "convert x.p12 to PEM .*set ssl.keystore.type=PEM",
        ),
        ({"ssl.keystore.key": "-----BEGIN"}, "ssl.keystore.key: write the key"),
        ({"ssl.endpoint.identification.algorithm": "x"}, "must be https or empty"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism: choose one of PLAIN"),
        ({"sasl.mechanism": "PLAIN"}, "ScramLoginModule is not the login module of PLAIN"),
        ({"sasl.jaas.config": ""}, "sasl.jaas.config: must have the form"),
        ({"sasl.jaas.config": f'{SCRAM} required username="secret"'}, "must have the form"),
        ({"sasl.jaas.config": f'{SCRAM} required username="secret";'}, "needs password"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "must be the URL of a file"),
    ],
)
def test_unusable_setting_is_named_without_secrets(change: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse_client_properties(SASL_SSL | change)
    assert "secret" not in str(caught.value)


def test_brokers_must_be_named() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers: must name"):
        parse_client_properties({}).settings()


def test_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    path.write_bytes(
        b"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        + f'sasl.jaas.config={module} required username="\\u017eofie" '.encode()
        + 'password="gr\u00fcn";'.encode("iso-8859-1")
    )
    sasl = read_client_properties(path).settings("b:1").sasl
    assert sasl is not None
    assert (sasl.username, sasl.password) == ("\u017eofie", "gr\u00fcn")


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.properties: cannot be read"):
        read_client_properties(tmp_path / "absent.properties")


def test_security_settings_without_effect_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    parse_client_properties({"ssl.protocol": "TLSv1.3", "linger.ms": "5"})
    assert caplog.messages == ["client properties: without effect: ssl.protocol"]
