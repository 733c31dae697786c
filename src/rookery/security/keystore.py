"""Keys and certificates that are not PEM files: PKCS12 stores, and PEM text from settings.

Python's `ssl` reads a private key from a file in PEM form only. A key from elsewhere is passed to
it through a file in memory, which no other process can open by a name.

Every client imports this module through `tls`, so it imports `cryptography` only to read a store.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Final

from rookery.errors import ConfigError

if TYPE_CHECKING:
    from cryptography import x509

_DER: Final = b"\x30"
_JAVA_STORES: Final = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}


@dataclass(frozen=True, slots=True)
class KeyStore:
    """The content of a PKCS12 store."""

    certificates: bytes
    """In PEM form: the certificate of the key first, then those that lead to its authority."""
    key: bytes = field(repr=False)
    """The private key in PEM form; empty if the store has none."""


def read_store(file: str, password: str | None) -> KeyStore | None:
    """Read a PKCS12 store; None if the file has another form, such as PEM.

    Raises:
        ConfigError: it cannot be read, is one of Java's own stores, or the password is wrong.
    """
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from error
    kind = _JAVA_STORES.get(data[:4])
    if kind is not None:
        raise ConfigError(f"{file}: is a {kind} store, which only Java reads; {_conversion(file)}")
    return _parse(file, data, password) if data.startswith(_DER) else None


def _conversion(file: str) -> str:
    new = Path(file).with_suffix(".p12")
    return (
        f"convert it with `keytool -importkeystore -srckeystore {file} -destkeystore {new} "
        f"-deststoretype PKCS12`, and use {new}"
    )


def _parse(file: str, data: bytes, password: str | None) -> KeyStore:
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        Encoding,
        NoEncryption,
        PrivateFormat,
        pkcs12,
    )

    try:
        store = pkcs12.load_pkcs12(data, password.encode() if password else None)
    except ValueError as error:
        problem = "the password is wrong" if password else "its password is not set"
        raise ConfigError(f"{file}: is not a PKCS12 store, or {problem}") from error
    certificates = [cert.certificate for cert in store.additional_certs]
    key = b""
    if store.key is not None and store.cert is not None:
        key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        certificates = list(_chain(store.cert.certificate, certificates))
    return KeyStore(
        b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates), key
    )


def _chain(
    first: x509.Certificate, others: Sequence[x509.Certificate]
) -> Iterator[x509.Certificate]:
    """Yield a certificate and its issuers in order; a store can hold them in any."""
    by_subject = {certificate.subject: certificate for certificate in others}
    current: x509.Certificate | None = first
    while current is not None:
        yield current
        current = by_subject.pop(current.issuer, None)


@contextmanager
def memory_file(data: bytes) -> Iterator[str]:
    """Yield the path of a file in memory that only this process can read."""
    if not hasattr(os, "memfd_create"):
        # Not on Linux: a file with mode 0600 that is deleted after its use.
        with NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            yield file.name
        return
    with os.fdopen(os.memfd_create("keystore"), "wb") as file:
        file.write(data)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"
