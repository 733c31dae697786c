"""Certificates that Rookery creates are accepted and refused as they must be."""

from __future__ import annotations

import datetime
import os
import shutil
import ssl
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography import x509

from rookery.clock import SystemClock, Time
from rookery.errors import ConfigError
from rookery.security.certificates import (
    CA_CERTIFICATE,
    CA_IDENTITY,
    CERTIFICATE_DAYS,
    CertificateAuthority,
    describe_certificates,
)
from rookery.security.distinguishedname import format_name, read_subject
from rookery.security.privatefile import create_private, replace_private
from rookery.security.tls import (
    ClientAuth,
    ClientTls,
    KeyPair,
    ServerTls,
    client_context,
    server_context,
)
from rookery.testing.clock import SeededRandom

# A handshake checks validity with the machine's clock.
NOW = SystemClock().now_ms()
HOSTS = ["broker.test", "*.brokers.test", "127.0.0.1", "::1"]
DAY_MS = 86_400_000


@pytest.fixture
def authority() -> CertificateAuthority:
    return CertificateAuthority.create("Test CA", NOW, SeededRandom())


@pytest.fixture
def folder(tmp_path: Path, authority: CertificateAuthority) -> Path:
    """A folder with an authority, a server's and a client's identity."""
    target = tmp_path / "new" / "certs"
    authority.write(target)
    authority.issue_server(HOSTS, NOW).write(target, "server")
    authority.issue_client("alice", NOW).write(target, "client")
    return target


def shake_hands(folder: Path, host: str, *, client: str | None = "client") -> ssl.SSLObject:
    """Connect in memory, and return the server's end."""
    ca = str(folder / CA_CERTIFICATE)
    own = None if client is None else KeyPair(str(folder / f"{client}.pem"))
    settings = ServerTls(KeyPair(str(folder / "server.pem")), ca, ClientAuth.REQUIRED)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client_context(ClientTls(ca, own=own)).wrap_bio(
        to_client, to_server, server_hostname=host
    )
    far = server_context(settings).wrap_bio(to_server, to_client, server_side=True)
    for _ in range(6):
        for end in (near, far):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    far.write(b"ready")
    assert near.read() == b"ready"
    return far


@pytest.mark.parametrize("host", ["broker.test", "a.brokers.test", "127.0.0.1", "::1"])
def test_certificates_authenticate_both_ends(folder: Path, host: str) -> None:
    server = shake_hands(folder, host)

    certificate = server.getpeercert(binary_form=True)
    assert certificate is not None
    assert format_name(read_subject(certificate)) == "CN=alice"


@pytest.mark.parametrize("host", ["other.test", "127.0.0.2", "a.b.brokers.test"])
def test_a_certificate_is_not_valid_for_other_hosts(folder: Path, host: str) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shake_hands(folder, host)


def test_a_stranger_is_refused(folder: Path) -> None:
    other = CertificateAuthority.create("Test CA", NOW, SeededRandom(1))
    other.issue_client("alice", NOW).write(folder, "stranger")

    with pytest.raises(ssl.SSLError):
        shake_hands(folder, "broker.test", client="stranger")
    with pytest.raises(ssl.SSLError):
        shake_hands(folder, "broker.test", client=None)


def test_a_client_cannot_act_as_a_server(folder: Path) -> None:
    shutil.copy(folder / "client.pem", folder / "server.pem")

    with pytest.raises(ssl.SSLError):
        shake_hands(folder, "alice")


def test_an_expired_certificate_is_refused(folder: Path, authority: CertificateAuthority) -> None:
    long_ago = Time(NOW - (CERTIFICATE_DAYS + 1) * DAY_MS)
    aged = CertificateAuthority.create("Test CA", long_ago, SeededRandom())
    aged.publish(folder)
    aged.issue_server(HOSTS, long_ago).write(folder, "server")

    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shake_hands(folder, "broker.test")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
@pytest.mark.parametrize(("name", "purpose"), [("server", "sslserver"), ("client", "sslclient")])
def test_openssl_accepts_the_certificates(folder: Path, name: str, purpose: str) -> None:
    done = subprocess.run(
        ["openssl", "verify", "-x509_strict", "-purpose", purpose,  # noqa: S607
         "-CAfile", str(folder / CA_CERTIFICATE), str(folder / f"{name}.pem")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr


def test_files_belong_to_their_owner_alone(folder: Path) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}

    assert modes == dict.fromkeys([CA_CERTIFICATE, CA_IDENTITY, "server.pem", "client.pem"], 0o600)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent)] == [0o700] * 2


def test_an_authority_is_loaded_again(folder: Path, authority: CertificateAuthority) -> None:
    loaded = CertificateAuthority.load(folder, SeededRandom(2))

    assert loaded.certificate == authority.certificate
    loaded.issue_client("bob", NOW).write(folder, "bob")
    assert shake_hands(folder, "broker.test", client="bob").version() == "TLSv1.3"


def test_an_authority_is_never_replaced(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    with pytest.raises(ConfigError, match="exists already"):
        CertificateAuthority.create("Test CA", NOW, SeededRandom(3)).write(folder)

    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_the_public_file_can_be_restored(folder: Path) -> None:
    expected = (folder / CA_CERTIFICATE).read_bytes()
    (folder / CA_CERTIFICATE).unlink()

    CertificateAuthority.load(folder, SeededRandom()).publish(folder)

    assert (folder / CA_CERTIFICATE).read_bytes() == expected
    assert b"PRIVATE" not in expected


@pytest.mark.parametrize("content", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----"])
def test_a_damaged_authority_is_reported(tmp_path: Path, content: bytes) -> None:
    (tmp_path / CA_IDENTITY).write_bytes(content)

    with pytest.raises(ConfigError, match=CA_IDENTITY):
        CertificateAuthority.load(tmp_path, SeededRandom())


def test_a_missing_authority_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=CA_IDENTITY):
        CertificateAuthority.load(tmp_path, SeededRandom())


def test_a_key_of_another_certificate_is_reported(folder: Path) -> None:
    other = CertificateAuthority.create("Test CA", NOW, SeededRandom(4))
    text = (folder / CA_IDENTITY).read_bytes()
    (folder / CA_IDENTITY).write_bytes(text.partition(b"-----BEGIN CERT")[0] + other.certificate)

    with pytest.raises(ConfigError, match="does not belong"):
        CertificateAuthority.load(folder, SeededRandom())


@pytest.mark.parametrize(
    "hosts", [[], [""], ["a b"], ["a/b"], ["bücher.test"], ["x" * 254], ["-a"]]
)
def test_invalid_hosts_are_refused(authority: CertificateAuthority, hosts: list[str]) -> None:
    with pytest.raises(ConfigError):
        authority.issue_server(hosts, NOW)


@pytest.mark.parametrize("user", ["", "x" * 65, "a\0b"])
def test_invalid_users_are_refused(authority: CertificateAuthority, user: str) -> None:
    with pytest.raises(ConfigError, match="64"):
        authority.issue_client(user, NOW)


def test_a_long_host_is_not_the_common_name(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    host = f"{'x' * 63}.{'y' * 63}.test"
    path = authority.issue_server([host], NOW).write(tmp_path, "long")

    (described,) = describe_certificates(path)
    assert (described.subject, described.names) == ("CN=broker", (host,))


def test_a_certificate_does_not_outlive_its_authority(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    late = Time(NOW + 3_600 * DAY_MS)
    path = authority.issue_client("alice", late).write(tmp_path, "alice")

    (described,) = describe_certificates(path)
    assert described.expires == describe_certificates(authority.publish(tmp_path))[0].expires
    with pytest.raises(ConfigError, match="expired on"):
        authority.issue_client("alice", Time(late + 100 * DAY_MS))


def test_certificates_are_described(folder: Path) -> None:
    (server,) = describe_certificates(folder / "server.pem")
    (ca,) = describe_certificates(folder / CA_CERTIFICATE)

    assert server.subject == "CN=broker.test"
    assert server.issuer == ca.subject == ca.issuer == "CN=Test CA"
    assert server.names == ("broker.test", "*.brokers.test", "127.0.0.1", "::1")
    assert (ca.is_authority, server.is_authority, ca.names) == (True, False, ())
    assert server.days_left(NOW) in (CERTIFICATE_DAYS - 1, CERTIFICATE_DAYS)
    assert server.days_left(Time(server.expires + 1)) == -1
    assert server.valid_from < NOW < server.expires
    assert len(server.fingerprint) == 32 * 3 - 1


def test_all_certificates_of_a_file_are_described(folder: Path) -> None:
    chain = folder / "chain.pem"
    names = ("server.pem", "client.pem", CA_CERTIFICATE)
    chain.write_bytes(b"".join((folder / name).read_bytes() for name in names))

    described = describe_certificates(chain)

    assert [cert.subject for cert in described] == ["CN=broker.test", "CN=alice", "CN=Test CA"]


@pytest.mark.parametrize("content", [None, b"", b"text"])
def test_a_file_without_a_certificate_is_reported(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "some.pem"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ConfigError, match=r"some\.pem"):
        describe_certificates(path)


def test_serial_numbers_differ(authority: CertificateAuthority) -> None:
    certificates = [
        x509.load_pem_x509_certificate(authority.issue_client("a", NOW).certificate)
        for _ in range(5)
    ]

    assert len({certificate.serial_number for certificate in certificates}) == 5
    assert all(
        certificate.not_valid_before_utc.tzinfo is datetime.UTC for certificate in certificates
    )


def test_a_private_key_is_not_printed(authority: CertificateAuthority) -> None:
    assert "PRIVATE" not in repr(authority.issue_client("a", NOW))


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = replace_private(tmp_path / "secret", b"old")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ConfigError, match=r"secret: No space left"):
        replace_private(path, b"new")

    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["secret"]  # noqa: PTH208 (hidden files count)


def test_a_file_is_created_once(tmp_path: Path) -> None:
    create_private(tmp_path / "secret", b"first")

    with pytest.raises(ConfigError, match="exists"):
        create_private(tmp_path / "secret", b"second")
    assert (tmp_path / "secret").read_bytes() == b"first"


def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    create_private(tmp_path / "secret", b"")

    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
