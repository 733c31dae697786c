"""When a server's own certificate expires."""

from __future__ import annotations

from pathlib import Path

from rookery.errors import ConfigError
from rookery.security.keystore import read_store
from rookery.security.tls import KeyPair


def read_expiry(own: KeyPair) -> int:
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
