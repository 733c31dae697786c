"""Watches the files of a server's certificate: their changes, and the end of its validity."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

from rookery.errors import ConfigError
from rookery.security.keystore import read_store
from rookery.security.tls import KeyPair, ServerTls, server_context


class _FileVersion(NamedTuple):
    """Differs between two versions of a file."""

    inode: int
    size: int
    modified_ns: int


class CertificateWatch:
    """Creates a new TLS context when a file of the settings has changed.

    A new context replaces the old one as a whole. Loading into the old one could leave it without
    a usable key if the files do not belong together.
    """

    def __init__(self, settings: ServerTls) -> None:
        """Load the files.

        Raises:
            ConfigError: a file or a setting cannot be used.
        """
        self._settings = settings
        # Before the files are read: a change in between is then found by the next look.
        self._loaded = self._versions()
        self.context: ssl.SSLContext = server_context(settings)
        """The context of the files that were last usable."""
        self.expires_ms = _read_expiry(settings.own)
        """When the certificate of that context expires, in milliseconds since 1970."""

    def look(self) -> bool:
        """Load the files if they have changed; return whether there is a new context.

        Raises:
            ConfigError: the changed files cannot be used; the old context stays, and the next call
                tries again.
        """
        versions = self._versions()
        if versions == self._loaded:
            return False
        try:
            context = server_context(self._settings)
            self.expires_ms = _read_expiry(self._settings.own)
            self.context = context
        except ConfigError as error:
            raise ConfigError(f"{error}; the previous certificate stays in use") from error
        self._loaded = versions
        return True

    def _versions(self) -> list[_FileVersion | None]:
        own = self._settings.own
        files = (own.certificate_file, own.key_file, self._settings.client_ca_file)
        return [_version(Path(file)) for file in files if file]


def _version(path: Path) -> _FileVersion | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return _FileVersion(stat.st_ino, stat.st_size, stat.st_mtime_ns)


def _read_expiry(own: KeyPair) -> int:
    """Return the end of validity of a certificate, in milliseconds since 1970.

    Raises:
        ConfigError: it cannot be read.
    """
    # It takes long to load, and a server without TLS does not need it.
    from cryptography import x509  # noqa: PLC0415

    try:
        [first, *_] = x509.load_pem_x509_certificates(_pem(own))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{own.certificate_file}: {error}", name="certificate_file") from error
    return int(first.not_valid_after_utc.timestamp() * 1000)


def _pem(own: KeyPair) -> bytes:
    if own.data is not None:
        return own.data.encode()
    store = read_store(own.certificate_file, own.key_password)
    return store.certificates if store is not None else Path(own.certificate_file).read_bytes()
