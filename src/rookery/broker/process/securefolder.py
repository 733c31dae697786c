"""The folder `security` of a broker with the setting `secure`: its keys, its first user's password.

    ca.pem, ca-key.pem        a certificate authority of its own
    broker.pem                the broker's key and certificate
    admin-password            the password of the first user
    admin-created             marks that the first user was created, which happens once
    client.properties         settings for Java clients
    librdkafka.conf           settings for librdkafka and kcat
    rookery.toml              the cluster as [clusters.local], for readers of its log

Only the owner can read the files. Each start keeps them. It writes the client files again, since
the address may have changed, and renews the certificate if it expires soon or lacks a name.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import socket
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Final

from rookery.broker.process.firstuser import (
    ADMIN,
    password_file,
    read_password,
    security_folder,
)
from rookery.broker.settings import BrokerSettings
from rookery.clock import Clock, Random
from rookery.errors import ConfigError
from rookery.security.certificates import (
    CA_CERTIFICATE,
    CA_IDENTITY,
    CertificateAuthority,
    describe_certificates,
)
from rookery.security.principal import parse_super_users
from rookery.security.privatefile import create_private, replace_private
from rookery.service.listen.listenersettings import ListenerConfig, SecurityProtocol

MECHANISM: Final = "SCRAM-SHA-512"
"""The mechanism in the client files."""
_NAME: Final = "broker"
_PASSWORD_BYTES: Final = 24
_RENEW_DAYS: Final = 30
_WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 (compared with, not listened on)


class SecureFolder:
    """The files of a secure broker."""

    def __init__(self, data: str) -> None:
        self.path = security_folder(data)
        self.password_file = password_file(data)
        """The file with the first user's password."""
        self._data = data

    @property
    def authority(self) -> Path:
        """The certificate that clients must trust."""
        return self.path / CA_CERTIFICATE

    @property
    def identity(self) -> Path:
        """The broker's key and certificate."""
        return self.path / f"{_NAME}.pem"

    def prepare(self, hosts: Collection[str], clock: Clock, random: Random) -> None:
        """Create the files that are missing, and renew the certificate if it is time.

        Args:
            hosts: the names and addresses that clients can connect to.
            clock: for the lifetime of certificates.
            random: for the password and serial numbers.

        Raises:
            ConfigError: a file cannot be read or written.
        """
        now = clock.now_ms()
        if not (self.path / CA_IDENTITY).exists():
            CertificateAuthority.create("Rookery CA", now, random).write(self.path)
        authority = CertificateAuthority.load(self.path, random)
        authority.publish(self.path)
        if not self.password_file.exists():
            text = base64.urlsafe_b64encode(random.token(_PASSWORD_BYTES))
            create_private(self.password_file, text + b"\n")
        if self.identity.exists():
            current = describe_certificates(self.identity)[0]
            if set(hosts) <= set(current.names) and current.days_left(now) > _RENEW_DAYS:
                return
        authority.issue_server(sorted(hosts), now).write(self.path, _NAME)

    def write_client_files(self, bootstrap: str) -> None:
        """Write the settings of clients; the broker is at these addresses.

        Raises:
            ConfigError: a file cannot be written.
        """
        password = read_password(self._data)
        replace_private(
            self.path / "client.properties",
            _properties(
                {
                    "bootstrap.servers": bootstrap,
                    "security.protocol": "SASL_SSL",
                    "ssl.truststore.type": "PEM",
                    "ssl.truststore.location": _java(str(self.authority)),
                    "sasl.mechanism": MECHANISM,
                    "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule "
                    f'required username="{ADMIN}" password="{password}";',
                }
            ),
        )
        replace_private(
            self.path / "librdkafka.conf",
            _properties(
                {
                    "bootstrap.servers": bootstrap,
                    "security.protocol": "sasl_ssl",
                    "ssl.ca.location": str(self.authority),
                    "sasl.mechanisms": MECHANISM,
                    "sasl.username": ADMIN,
                    "sasl.password": password,
                }
            ),
        )
        data = json.dumps(str(self.path.parent), ensure_ascii=False)
        replace_private(self.path / "rookery.toml", f"[clusters.local]\ndata = {data}\n".encode())


def secure_settings(settings: BrokerSettings, clock: Clock, random: Random) -> BrokerSettings:
    """Prepare the folder, and return the settings of a broker that only serves its users.

    Raises:
        ConfigError: other settings are wrong or contradict `secure`, or a file cannot be written.
    """
    _check(settings)
    listener = ListenerConfig(listen=settings.listen, advertise=settings.advertise)
    folder = SecureFolder(settings.data)
    folder.prepare(_hosts(listener), clock, random)
    security = replace(settings.security, certificate_file=str(folder.identity), key_file="")
    super_users = parse_super_users(settings.super_users)
    return replace(
        settings,
        listen=f"sasl_ssl://{listener.address.text}",
        security=security,
        authorizer="acls" if settings.authorizer == "none" else settings.authorizer,
        super_users=";".join(dict.fromkeys([*super_users, f"User:{ADMIN}"])),
    )


def _check(settings: BrokerSettings) -> None:
    if settings.store or settings.log_dir:
        raise ConfigError(
            "needs a data folder; with a store or a log directory, create certificates with "
            "`rookery certs` and set the listener's security",
            name="secure",
        )
    if settings.listeners:
        raise ConfigError(
            "configures one listener; with tables [broker.listeners.NAME], create certificates "
            "with `rookery certs`",
            name="secure",
        )
    listener = ListenerConfig(listen=settings.listen)
    if "://" in settings.listen and listener.protocol is not SecurityProtocol.SASL_SSL:
        raise ConfigError("the listener must be sasl_ssl://, or have no protocol", name="secure")
    if settings.security.certificate_file:
        raise ConfigError(
            "creates a certificate of its own; leave out `certificate_file`", name="secure"
        )


def _hosts(listener: ListenerConfig) -> set[str]:
    hosts = {"localhost", "127.0.0.1", "::1", socket.gethostname(), listener.address.host}
    if listener.advertise:
        hosts.add(listener.choose_address(0).host)
    return {_normal(host) for host in hosts - _WILDCARDS}


def _normal(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def _properties(values: dict[str, str]) -> bytes:
    return "".join(f"{key}={value}\n" for key, value in values.items()).encode()


def _java(text: str) -> str:
    """Escape a value for a properties file, which Java reads as Latin-1."""
    units = text.encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(
        chr(code) if 0x20 <= code < 0x7F and code != ord("\\") else f"\\u{code:04x}"
        for code in codes
    )
