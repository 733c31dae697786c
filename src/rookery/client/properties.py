"""Reads Java's `client.properties`: how to reach a cluster, with TLS and a login.

Stores in PEM form are used (`ssl.truststore.type=PEM`). Those in JKS or PKCS12 form are rejected,
with the way to convert them. Settings of producers, consumers and timeouts have no effect.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rookery.client.settings import ClientSettings, Sasl
from rookery.errors import ConfigError, Error
from rookery.formats.logfile.properties import parse_properties
from rookery.security.tls import ClientTls, KeyPair

log = logging.getLogger(__name__)

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MODULES: Final = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
}
"""The login modules of Kafka and their mechanisms."""
_VALUE: Final = r'"(?:\\.|[^"\\])*"|[^\s;"]+'
_JAAS: Final = re.compile(
    rf"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)"
    rf"((?:\s+[\w.$-]+\s*=\s*(?:{_VALUE}))*)\s*;\s*",
    re.IGNORECASE,
)
_OPTION: Final = re.compile(rf"([\w.$-]+)\s*=\s*({_VALUE})")
_BOOTSTRAP: Final = "bootstrap.servers"
_TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 (the name of a setting)
_SECURITY_KEYS: Final = frozenset(
    {
        "sasl.jaas.config", "sasl.mechanism", "security.protocol",
        "ssl.endpoint.identification.algorithm", "ssl.key.password", "ssl.keystore.location",
        "ssl.keystore.type", "ssl.truststore.certificates", "ssl.truststore.location",
        "ssl.truststore.type", _TOKEN_URL,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ClientProperties:
    """The part of a `client.properties` that says how to connect."""

    bootstrap: str = ""
    """The brokers; empty if the file does not name them."""
    client_id: str = ""
    """The client id; empty if the file does not set it."""
    tls: ClientTls | None = None
    sasl: Sasl | None = None

    def settings(self, bootstrap: str = "") -> ClientSettings:
        """Return settings for a client; `bootstrap` replaces the brokers of the file.

        Raises:
            ConfigError: there are no brokers.
        """
        brokers = bootstrap or self.bootstrap
        if not brokers:
            raise ConfigError("must name at least one broker as host:port", name=_BOOTSTRAP)
        names: dict[str, Any] = {"client_id": self.client_id} if self.client_id else {}
        return ClientSettings(bootstrap=brokers, tls=self.tls, sasl=self.sasl, **names)


def read_client_properties(path: str | Path) -> ClientProperties:
    """Read a file.

    Raises:
        ConfigError: the file cannot be read, or a setting cannot be used; the text names it.
    """
    try:
        # As Java does; it writes other characters as in \u017e.
        text = Path(path).read_text("iso-8859-1")
        return parse_client_properties(parse_properties(text, str(path)))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error}", name=str(path)) from error
    except Error as error:
        raise ConfigError(str(error), name=str(path)) from error


def parse_client_properties(values: Mapping[str, str]) -> ClientProperties:
    """Convert the settings of a Java client.

    Raises:
        ConfigError: a setting cannot be used.
    """
    protocol = values.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        raise ConfigError(f"choose one of {', '.join(_PROTOCOLS)}", name="security.protocol")
    _warn_about(values)
    return ClientProperties(
        bootstrap=values.get(_BOOTSTRAP, "").strip(),
        client_id=values.get("client.id", "").strip(),
        tls=_tls(values) if protocol.endswith("SSL") else None,
        sasl=_sasl(values) if protocol.startswith("SASL") else None,
    )


def _warn_about(values: Mapping[str, str]) -> None:
    prefixes = ("ssl.", "sasl.", "security.")
    unused = sorted(key for key in values if key.startswith(prefixes) and key not in _SECURITY_KEYS)
    if unused:
        log.warning("client properties: without effect: %s", ", ".join(unused))


def _tls(values: Mapping[str, str]) -> ClientTls:
    checks = values.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if checks not in {"https", ""}:
        raise ConfigError("must be https or empty", name="ssl.endpoint.identification.algorithm")
    return ClientTls(
        ca_file=_store(values, "truststore"),
        ca_data=values.get("ssl.truststore.certificates"),
        own=_own(values),
        check_hostname=checks == "https",
    )


def _store(values: Mapping[str, str], store: str) -> str | None:
    """Return the file of a store in PEM form; None if there is none."""
    location = values.get(f"ssl.{store}.location", "").strip()
    kind = values.get(f"ssl.{store}.type", "JKS").strip().upper()
    if location and kind != "PEM":
        raise ConfigError(
            f"a store of type {kind} cannot be read; convert {location} to PEM (`keytool "
            f"-importkeystore -srckeystore {location} -destkeystore store.p12 -deststoretype "
            "pkcs12`, then `openssl pkcs12 -in store.p12 -nodes -out store.pem`) and set "
            f"ssl.{store}.type=PEM",
            name=f"ssl.{store}.location",
        )
    return location or None


def _own(values: Mapping[str, str]) -> KeyPair | None:
    inline = [
        key for key in ("ssl.keystore.key", "ssl.keystore.certificate.chain") if key in values
    ]
    if inline:
        raise ConfigError(
            "write the key and the certificate to a file, and set ssl.keystore.location and "
            "ssl.keystore.type=PEM",
            name=inline[0],
        )
    file = _store(values, "keystore")
    return KeyPair(file, None, values.get("ssl.key.password")) if file else None


def _sasl(values: Mapping[str, str]) -> Sasl:
    mechanism = values.get("sasl.mechanism", "").strip()
    known = [name for names in _MODULES.values() for name in names]
    if mechanism not in known:
        raise ConfigError(f"choose one of {', '.join(known)}", name="sasl.mechanism")
    if mechanism == "OAUTHBEARER":
        return Sasl(mechanism, token_file=_token_file(values))
    options = _login_options(values.get("sasl.jaas.config", ""), mechanism)
    missing = [name for name in ("username", "password") if not options.get(name)]
    if missing:
        raise ConfigError(f"needs {' and '.join(missing)}", name="sasl.jaas.config")
    is_token = mechanism.startswith("SCRAM-") and options.get("tokenauth", "").lower() == "true"
    return Sasl(mechanism, options["username"], options["password"], is_delegation_token=is_token)


def _token_file(values: Mapping[str, str]) -> str:
    url = values.get(_TOKEN_URL, "").strip()
    if not url.startswith("file:"):
        raise ConfigError(
            "must be the URL of a file with the token, such as file:///path/token", name=_TOKEN_URL
        )
    return re.sub(r"^file:(//)?", "", url)


def _login_options(text: str, mechanism: str) -> dict[str, str]:
    """Return the options of `sasl.jaas.config`. Its text stays out of errors: it has a password."""
    match = _JAAS.fullmatch(text)
    if match is None:
        raise ConfigError(
            'must have the form: <login module> required username="…" password="…";',
            name="sasl.jaas.config",
        )
    module = match[1].rpartition(".")[2]
    if mechanism not in _MODULES.get(module, ()):
        raise ConfigError(
            f"{module} is not the login module of {mechanism}", name="sasl.jaas.config"
        )
    return {name: _unquote(value) for name, value in _OPTION.findall(match[2])}


def _unquote(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
