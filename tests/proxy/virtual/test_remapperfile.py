"""The YAML configuration of a partition remapper becomes settings of a proxy."""

from __future__ import annotations

from pathlib import Path

import pytest

from rookery.config.load import load
from rookery.errors import ConfigError
from rookery.proxy.settings import ProxySettings
from rookery.proxy.virtual.remapperfile import read_remapper_file
from rookery.proxy.virtual.rules import VirtualRules

FULL = """\
listen:
  address: 127.0.0.1:9092
  advertised_address: proxy.example.com:9092
  max_connections: 77
  security:
    protocol: SASL_SSL
    tls:
      cert_path: proxy.pem
      key_path: proxy.key
      ca_cert_path: clients.pem
      require_client_cert: true
      principal: {mapping_rules: DEFAULT}
    sasl:
      enabled_mechanisms: [PLAIN, SCRAM-SHA-512]
kafka:
  bootstrap_servers: [kafka-1:9092, kafka-2:9092]
  connection_timeout_ms: 1234
  request_timeout_ms: 2345
  metadata_refresh_interval_secs: 7
  security_protocol: SASL_SSL
  tls:
    ca_cert_path: kafka.pem
    cert_path: own.pem
    key_path: own.key
    insecure_skip_verify: false
  sasl: {mechanism: PLAIN, username: proxy, password: secret}
mapping:
  virtual_partitions: 100
  physical_partitions: 10
  offset_range: 1099511627776
  topics:
    high-volume-events: {virtual_partitions: 1000, physical_partitions: 100}
    "metrics.*":
      virtual_partitions: 50
      physical_partitions: 5
metrics: {enabled: true, address: 127.0.0.1:9191}
logging: {level: warn, json: false}
"""
SMALL = """\
kafka: {bootstrap_servers: kafka:9092}
mapping: {virtual_partitions: 4, physical_partitions: 2}
"""


def read(path: Path, text: str) -> ProxySettings:
    file = path / "config.yaml"
    file.write_text(text)
    return load(ProxySettings, "proxy", {}, more=read_remapper_file(file)).settings


def test_every_key_has_its_setting(tmp_path: Path) -> None:
    settings = read(tmp_path, FULL)

    assert settings.nodes == "proxy"
    assert settings.listen == "sasl_ssl://127.0.0.1:9092"
    assert settings.instances == "1=proxy.example.com:9092"
    assert settings.max_connections == 77
    assert settings.upstream == "kafka-1:9092,kafka-2:9092"
    assert (settings.connect_timeout_ms, settings.request_timeout_ms) == (1234, 2345)
    assert settings.refresh_interval_ms == 7000
    own, upstream = settings.security, settings.upstream_security
    assert (own.certificate_file, own.key_file) == ("proxy.pem", "proxy.key")
    assert (own.client_ca_file, own.client_auth) == ("clients.pem", "required")
    assert own.mechanisms == "PLAIN,SCRAM-SHA-512"
    assert upstream.tls
    assert upstream.ca_file == "kafka.pem"
    assert (upstream.certificate_file, upstream.key_file) == ("own.pem", "own.key")
    assert (upstream.mechanism, upstream.username, upstream.password) == (
        "PLAIN", "proxy", "secret",
    )  # fmt: skip
    assert settings.http_listen == "127.0.0.1:9191"
    assert settings.log_level == "warning"
    rules = VirtualRules(settings.virtual)
    for name, count in (("high-volume-events", 1000), ("metrics-a", 50), ("other", 100)):
        rule = rules.find(name)
        assert rule is not None
        assert rule.remapper.virtual_partitions == count


def test_missing_keys_have_defaults(tmp_path: Path) -> None:
    settings = read(tmp_path, SMALL + "metrics: {enabled: false}\n")

    assert settings.listen == "plaintext://0.0.0.0:9092"
    assert settings.http_listen == ""
    assert not settings.upstream_security.tls


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ("listn: {}", "listn"),
        ("logging: {format: json}", "logging.format"),
        ("listen: {port: 1}", "listen.port"),
        ("listen: 9092", "listen"),
        ("listen: {security: {protocol: TLS}}", "protocol"),
        ("listen: {security: {sasl: {credentials: {users: [{username: a}]}}}}", "users-file"),
        ("listen: {security: {sasl: {oauthbearer: {validation: none}}}}", "oauth_jwks"),
        ("logging: {json: true}", "logging.json"),
        ("metrics: &a {}\nlogging: *a", "aliases"),
        ("kafka: {}", "given twice"),
        ("? [a]\n: b", "not YAML"),
        ("logging: !!python/object:os.system {}", "not YAML"),
        ("logging: {", "not YAML"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, more: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        read(tmp_path, f"{SMALL}{more}\n")


@pytest.mark.parametrize("text", ["", "[]", "kafka: {bootstrap_servers: 3}\nmapping: {}", "kafka:"])
def test_files_without_a_mapping_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        read(tmp_path, text)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        read_remapper_file(tmp_path / "none.yaml")
