"""Converts TLS settings to `ssl.SSLContext`, for both ends; the minimum version is TLS 1.2.

Files are in PEM form, or PKCS12 stores.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Final

from rookery.errors import ConfigError
from rookery.security.keystore import memory_file, read_store

_REFUSED_CERTIFICATES: Final = frozenset(
    {"CERTIFICATE_VERIFY_FAILED", "PEER_DID_NOT_RETURN_A_CERTIFICATE"}
)
"""OpenSSL's reasons for a handshake that fails because of the client's certificate."""


class ClientAuth(Enum):
    """Whether a server requests the client's certificate; the values are Kafka's."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate chain and its private key."""

    certificate_file: str
    """Our certificate first, then those that lead to the authority (PEM); or a PKCS12 store, which
    holds the key, too. Empty if `data` is set."""

    key_file: str | None = None
    """The private key; None if it is in the certificate file."""

    key_password: str | None = field(default=None, repr=False)
    """The password of the key or of the store, if it is encrypted."""

    data: str | None = field(default=None, repr=False)
    """The certificates and the key as text (PEM), in place of files."""


@dataclass(frozen=True, slots=True)
class ClientTls:
    """TLS settings for connections to a broker."""

    ca_file: str | None = None
    """Trusted authorities (PEM); None and no `ca_data`: those of the operating system."""

    ca_data: str | None = field(default=None, repr=False)
    """The same as text."""

    own: KeyPair | None = None
    """Our own certificate, for brokers that ask for one."""

    verify: bool = True
    """Whether the broker's certificate is verified. False allows man-in-the-middle attacks."""

    check_hostname: bool = True
    """Whether the certificate must be for the host that we connect to."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """TLS settings for connections from clients."""

    own: KeyPair
    """The server's certificate."""

    client_ca_file: str | None = None
    """Authorities that clients' certificates must come from (PEM or PKCS12)."""

    client_auth: ClientAuth = ClientAuth.NONE
    """Whether clients are asked for a certificate."""

    client_ca_password: str | None = field(default=None, repr=False)
    """The password of the authorities, if they are a PKCS12 store."""

    client_ca_data: str | None = field(default=None, repr=False)
    """The authorities as text (PEM)."""


def client_context(settings: ClientTls) -> ssl.SSLContext:
    """Make the context for connections to brokers.

    Raises:
        ConfigError: a file or a setting is not usable; the text names both.
    """
    context = _context(ssl.PROTOCOL_TLS_CLIENT)
    if not settings.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.check_hostname = settings.check_hostname
        _load_authorities(context, settings.ca_file, settings.ca_data)
    if settings.own is not None:
        _load_own(context, settings.own)
    return context


def server_context(settings: ServerTls) -> ssl.SSLContext:
    """Make the context for a listener.

    Raises:
        ConfigError: a file or a setting is not usable; the text names both.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = _AlertingTls
    _load_own(context, settings.own)
    if settings.client_auth is ClientAuth.NONE:
        return context
    # The system's authorities sign certificates for web sites; any of their customers could log in.
    if settings.client_ca_file is None and settings.client_ca_data is None:
        raise ConfigError(
            f"tls.client_ca_file: must be set, because tls.client_auth is "
            f"{settings.client_auth.value!r}"
        )
    if settings.client_ca_file is not None:
        password = settings.client_ca_password
        _load_file(context, "tls.client_ca_file", settings.client_ca_file, password)
    if settings.client_ca_data is not None:
        _load_data(context, settings.client_ca_data, "tls.client_ca_data")
    required = settings.client_auth is ClientAuth.REQUIRED
    context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


class _AlertingTls(ssl.SSLObject):
    """Lets a client learn that its certificate is refused.

    Event loops drop the connection when a handshake fails, together with the alert that OpenSSL has
    written for the client. The client would take that for a fault of the network and try again,
    until a timeout. If the handshake claims to need more input instead, the loop sends the alert
    and waits: for the client, which closes the connection, or for the timeout of handshakes.
    """

    _error: ssl.SSLError | None = None

    def do_handshake(self) -> None:
        if self._error is not None:
            raise self._error
        try:
            super().do_handshake()
        except ssl.SSLError as error:
            if error.reason not in _REFUSED_CERTIFICATES:
                raise
            self._error = error
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, str(error)) from error


def _context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Renegotiation lets a client cause useless work for the server; compression leaks (CRIME).
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    return context


def _load_authorities(context: ssl.SSLContext, file: str | None, data: str | None) -> None:
    if file is not None:
        _load_file(context, "tls.ca_file", file)
    if data is not None:
        _load_data(context, data)
    if file is None and data is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)


def _load_file(
    context: ssl.SSLContext, setting: str, file: str, password: str | None = None
) -> None:
    try:
        store = read_store(file, password)
    except ConfigError as error:
        raise ConfigError(f"{setting}: {error}") from error
    if store is not None:
        _load_data(context, store.certificates.decode(), setting)
        return
    try:
        context.load_verify_locations(cafile=file)
    except OSError as error:  # ssl.SSLError is one, too
        raise ConfigError(f"{setting}: {file}: {_reason(error)}") from error


def _load_data(context: ssl.SSLContext, data: str, setting: str = "tls.ca_data") -> None:
    try:
        context.load_verify_locations(cadata=data)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{setting}: not a certificate in PEM form: {error}") from error


def _load_own(context: ssl.SSLContext, own: KeyPair) -> None:
    if own.data is not None:
        with memory_file(own.data.encode()) as file:
            _load_pem(context, replace(own, certificate_file=file), "the text of the setting")
        return
    try:
        store = read_store(own.certificate_file, own.key_password)
    except ConfigError as error:
        raise ConfigError(f"tls.certificate_file: {error}") from error
    if store is None:
        _load_pem(context, own, own.certificate_file)
        return
    if not store.key:
        raise ConfigError(f"tls.certificate_file: {own.certificate_file}: has no private key")
    with memory_file(store.key + store.certificates) as file:
        _load_pem(context, KeyPair(file), own.certificate_file)


def _load_pem(context: ssl.SSLContext, own: KeyPair, shown: str) -> None:
    """Load a certificate in PEM form; errors call its place `shown`."""
    if own.key_file is not None:
        _check_readable("tls.key_file", own.key_file)
    # A callable rather than the text: without one, OpenSSL would prompt on the terminal and block.
    asked: list[bool] = []

    def password() -> str:
        asked.append(True)
        return own.key_password or ""

    try:
        context.load_cert_chain(own.certificate_file, own.key_file, password)
    except OSError as error:
        named = replace(own, certificate_file=shown)
        raise ConfigError(_why_not_loaded(named, error, is_encrypted=bool(asked))) from error


def _check_readable(setting: str, file: str) -> None:
    # OpenSSL does not report which of the two files it could not open.
    try:
        Path(file).open("rb").close()
    except OSError as error:
        raise ConfigError(f"{setting}: {file}: {_reason(error)}") from error


def _why_not_loaded(own: KeyPair, error: OSError, *, is_encrypted: bool) -> str:
    if is_encrypted:
        file = own.key_file or own.certificate_file
        problem = "is not the right one for" if own.key_password else "is not set, but needed for"
        return f"tls.key_password: {problem} {file}"
    if own.key_file is None:
        return f"tls.certificate_file: {own.certificate_file}: {_reason(error)}"
    return (
        f"tls.certificate_file, tls.key_file: {own.certificate_file}, {own.key_file}: "
        f"{_reason(error)}"
    )


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        if error.reason == "KEY_VALUES_MISMATCH":
            return "the private key does not belong to the certificate"
        return f"not in PEM form ({error.reason or error.args[-1]})"
    return error.strerror or str(error)
