"""How to reach a cluster, in the words of librdkafka's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rookery.client.settings import ClientSettings, Sasl
from rookery.errors import ConfigError
from rookery.security.tls import ClientTls, KeyPair

_PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_KEYS: Final = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "group.id",
        "isolation.level",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
    }
)


def client_settings(config: Mapping[str, str]) -> ClientSettings:
    """Read how to reach the cluster, in the words of librdkafka.

    Raises:
        ConfigError: a key is not known here, or its value cannot be used.
    """
    unknown = sorted(set(config) - _KEYS)
    if unknown:
        raise ConfigError(
            f"config: {', '.join(unknown)}: not known here; there are {', '.join(sorted(_KEYS))}"
        )
    if "bootstrap.servers" not in config:
        raise ConfigError("config: bootstrap.servers: name at least one broker as host:port")
    protocol = config.get("security.protocol", "plaintext").lower()
    if protocol not in _PROTOCOLS:
        raise ConfigError(
            f"config: security.protocol={protocol!r}: choose from {', '.join(_PROTOCOLS)}"
        )
    return ClientSettings(
        bootstrap=config["bootstrap.servers"],
        client_id=config.get("client.id", "rookery"),
        tls=_tls(config) if protocol.endswith("ssl") else None,
        sasl=_sasl(config) if protocol.startswith("sasl") else None,
    )


def _tls(config: Mapping[str, str]) -> ClientTls:
    own = None
    if certificate := config.get("ssl.certificate.location"):
        key, password = config.get("ssl.key.location"), config.get("ssl.key.password")
        own = KeyPair(certificate, key, password)
    elif "ssl.key.location" in config:
        raise ConfigError("config: ssl.key.location: needs ssl.certificate.location beside it")
    checks = config.get("ssl.endpoint.identification.algorithm", "https")
    if checks not in {"https", "none"}:
        raise ConfigError(
            f"config: ssl.endpoint.identification.algorithm={checks!r}: choose https or none"
        )
    return ClientTls(
        ca_file=config.get("ssl.ca.location"),
        ca_data=config.get("ssl.ca.pem"),
        own=own,
        check_hostname=checks == "https",
    )


def _sasl(config: Mapping[str, str]) -> Sasl:
    mechanism = config.get("sasl.mechanism", config.get("sasl.mechanisms", ""))
    missing = [
        name
        for name, value in (
            ("sasl.mechanism", mechanism),
            ("sasl.username", config.get("sasl.username")),
            ("sasl.password", config.get("sasl.password")),
        )
        if not value
    ]
    if missing:
        raise ConfigError(f"config: {', '.join(missing)}: must be set for security.protocol=sasl_…")
    return Sasl(mechanism, config["sasl.username"], config["sasl.password"])
