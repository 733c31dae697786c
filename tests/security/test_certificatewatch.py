"""Certificates that are replaced while a server runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rookery.errors import ConfigError
from rookery.security.certificatewatch import CertificateWatch
from rookery.security.tls import ClientAuth, KeyPair, ServerTls
from rookery.testing.certificates import Certificates


@pytest.fixture
def files(tmp_path: Path) -> Certificates:
    return Certificates.make(tmp_path / "first", "localhost")


@pytest.fixture
def others(tmp_path: Path) -> Certificates:
    return Certificates.make(tmp_path / "second", "localhost")


def replace(old: Path, new: Path) -> None:
    old.write_bytes(new.read_bytes())


def test_unchanged_files_keep_the_context(files: Certificates) -> None:
    watch = CertificateWatch(ServerTls(KeyPair(str(files.server))))
    context = watch.context
    assert not watch.look()
    assert watch.context is context


def test_changed_certificate_gives_a_new_context(files: Certificates, others: Certificates) -> None:
    watch = CertificateWatch(ServerTls(KeyPair(str(files.server))))
    context = watch.context
    replace(files.server, others.server)
    assert watch.look()
    assert watch.context is not context
    assert not watch.look()


def test_changed_authority_of_clients_gives_a_new_context(
    files: Certificates, others: Certificates
) -> None:
    settings = ServerTls(KeyPair(str(files.server)), str(files.ca), ClientAuth.REQUIRED)
    watch = CertificateWatch(settings)
    before = watch.context.get_ca_certs(binary_form=True)
    replace(files.ca, others.ca)
    assert watch.look()
    assert watch.context.get_ca_certs(binary_form=True) != before


def test_bad_file_keeps_the_old_context(files: Certificates, others: Certificates) -> None:
    watch = CertificateWatch(ServerTls(KeyPair(str(files.server))))
    context = watch.context
    files.server.write_text("half a certificate")
    for _ in range(2):
        with pytest.raises(ConfigError, match="the previous certificate stays in use"):
            watch.look()
        assert watch.context is context
    replace(files.server, others.server)
    assert watch.look()


def test_missing_file_keeps_the_old_context(files: Certificates) -> None:
    watch = CertificateWatch(ServerTls(KeyPair(str(files.server))))
    content = files.server.read_bytes()
    files.server.unlink()
    with pytest.raises(ConfigError, match="No such file"):
        watch.look()
    files.server.write_bytes(content)
    assert watch.look()
