"""Certificates from PKCS12 stores and from text, tried by real handshakes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from rookery.errors import ConfigError
from rookery.security.keystore import read_store
from rookery.security.tls import (
    ClientAuth,
    ClientTls,
    KeyPair,
    ServerTls,
    client_context,
    server_context,
)
from rookery.testing.certificates import Certificates
from tests.security.test_tls import _shake

STORE_PASSWORD = "store-secret"  # noqa: S105 (the fixture's)
HOST = "broker.test"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("keystore"), HOST)


def write_store(pem: Path, store: Path, *, password: str = STORE_PASSWORD) -> str:
    """Write a PEM file with a key as a PKCS12 store."""
    data = pem.read_bytes()
    key = serialization.load_pem_private_key(data, None)
    first, *others = x509.load_pem_x509_certificates(data)
    lock = serialization.BestAvailableEncryption(password.encode())
    store.write_bytes(
        # A key of trustme is one that a store can hold.
        pkcs12.serialize_key_and_certificates(b"server", key, first, others, lock)  # type: ignore[arg-type]
    )
    return str(store)


def write_authorities(pem: Path, store: Path) -> str:
    """Write certificates as a PKCS12 store without a key."""
    certificates = x509.load_pem_x509_certificates(pem.read_bytes())
    lock = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
    store.write_bytes(pkcs12.serialize_key_and_certificates(None, None, None, certificates, lock))
    return str(store)


def test_server_uses_a_store(files: Certificates, tmp_path: Path) -> None:
    store = write_store(files.server, tmp_path / "server.p12")
    authorities = write_authorities(files.ca, tmp_path / "ca.p12")
    server = server_context(
        ServerTls(
            KeyPair(store, None, STORE_PASSWORD), authorities, ClientAuth.REQUIRED, STORE_PASSWORD
        )
    )
    own = KeyPair(str(files.client))

    _, end = _shake(client_context(ClientTls(ca_file=str(files.ca), own=own)), server, HOST)

    assert end.getpeercert()


def test_server_uses_text(files: Certificates) -> None:
    own = KeyPair("", data=files.server.read_text())
    server = server_context(
        ServerTls(own, None, ClientAuth.REQUIRED, client_ca_data=files.ca.read_text())
    )
    client = ClientTls(ca_file=str(files.ca), own=KeyPair(str(files.client)))

    _, end = _shake(client_context(client), server, HOST)

    assert end.getpeercert()


@pytest.mark.parametrize(("password", "text"), [("wrong", "is wrong"), ("", "is not set")])
def test_wrong_password_is_reported(
    files: Certificates, tmp_path: Path, password: str, text: str
) -> None:
    store = write_store(files.server, tmp_path / "server.p12")
    with pytest.raises(ConfigError, match=text) as caught:
        server_context(ServerTls(KeyPair(store, None, password or None)))
    assert store in str(caught.value)


def test_store_without_a_key_is_refused(files: Certificates, tmp_path: Path) -> None:
    store = write_authorities(files.ca, tmp_path / "ca.p12")
    with pytest.raises(ConfigError, match="has no private key"):
        server_context(ServerTls(KeyPair(store, None, STORE_PASSWORD)))


def test_text_that_is_not_a_certificate_is_refused() -> None:
    with pytest.raises(ConfigError, match="the text of the setting"):
        server_context(ServerTls(KeyPair("", data="none")))


@pytest.mark.usefixtures("own_processes")
def test_stores_of_keytool(files: Certificates, tmp_path: Path) -> None:
    # Java writes its own forms of both stores.
    start = write_store(files.server, tmp_path / "start.p12")
    new, jks, trust = (str(tmp_path / name) for name in ("server.p12", "server.jks", "trust.p12"))
    for target, kind in ((new, "PKCS12"), (jks, "JKS")):
        keytool(
            "-importkeystore", "-srckeystore", start, "-srcstorepass", STORE_PASSWORD,
            "-destkeystore", target, "-deststoretype", kind, "-deststorepass", STORE_PASSWORD,
        )  # fmt: skip
    keytool(
        "-importcert", "-noprompt", "-alias", "ca", "-file", str(files.ca),
        "-keystore", trust, "-storetype", "PKCS12", "-storepass", STORE_PASSWORD,
    )  # fmt: skip

    server = server_context(
        ServerTls(KeyPair(new, None, STORE_PASSWORD), trust, ClientAuth.REQUIRED, STORE_PASSWORD)
    )
    client = ClientTls(ca_file=str(files.ca), own=KeyPair(str(files.client)))
    _shake(client_context(client), server, HOST)
    with pytest.raises(ConfigError, match=f"keytool -importkeystore -srckeystore {jks}"):
        read_store(jks, STORE_PASSWORD)


def keytool(*args: str) -> None:
    program = shutil.which("keytool")
    assert program is not None, "there is no keytool; scripts/install-peers installs Java"
    done = subprocess.run([program, *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
