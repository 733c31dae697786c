"""TLS contexts, tried by real handshakes between the two ends in memory."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from rookery.errors import ConfigError
from rookery.security.tls import (
    ClientAuth,
    ClientTls,
    KeyPair,
    ServerTls,
    client_context,
    server_context,
)


class _Pki:
    """An authority, a server's and a client's certificate, all in files."""

    def __init__(self, folder: Path) -> None:
        authority, other = trustme.CA(), trustme.CA()
        self.folder = folder
        self.ca = self._write("ca.pem", authority.cert_pem)
        self.other_ca = self._write("other-ca.pem", other.cert_pem)
        self.server = self._pair("server", authority.issue_cert("broker.test", "127.0.0.1"))
        self.client = self._pair("client", authority.issue_cert("alice@client.test"))
        self.stranger = self._pair("stranger", other.issue_cert("mallory@client.test"))

    def _write(self, name: str, blob: trustme.Blob) -> str:
        blob.write_to_path(self.folder / name)
        return str(self.folder / name)

    def _pair(self, name: str, issued: trustme.LeafCert) -> KeyPair:
        for blob in issued.cert_chain_pems:
            blob.write_to_path(self.folder / f"{name}.pem", append=True)
        key = self._write(f"{name}.key", issued.private_key_pem)
        return KeyPair(str(self.folder / f"{name}.pem"), key)

    def encrypted(self, password: str) -> str:
        """Write the server's key once more, encrypted."""
        key_file = self.server.key_file
        assert key_file is not None
        key = load_pem_private_key(Path(key_file).read_bytes(), None)
        form = PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())
        file = self.folder / "encrypted.key"
        file.write_bytes(key.private_bytes(Encoding.PEM, *form))
        return str(file)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> _Pki:
    return _Pki(tmp_path_factory.mktemp("pki"))


def _shake(
    client_side: ssl.SSLContext, server_side: ssl.SSLContext, host: str = "broker.test"
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Let the two ends shake hands; raise what the first to fail raises."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_side.wrap_bio(to_client, to_server, server_hostname=host)
    server = server_side.wrap_bio(to_server, to_client, server_side=True)
    # Twice the flights that TLS 1.2 needs; the last ones carry late alerts of TLS 1.3.
    for _ in range(6):
        for end in (client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    server.write(b"ready")
    assert client.read(5) == b"ready"
    return client, server


def test_client_and_server_complete_the_handshake(pki: _Pki) -> None:
    client, _ = _shake(
        client_context(ClientTls(ca_file=pki.ca)), server_context(ServerTls(pki.server))
    )

    assert client.version() == "TLSv1.3"


def test_authorities_can_be_given_as_text(pki: _Pki) -> None:
    settings = ClientTls(ca_data=Path(pki.ca).read_text(encoding="ascii"))

    client, _ = _shake(client_context(settings), server_context(ServerTls(pki.server)))

    assert client.getpeercert()


def test_both_sources_of_authorities_are_trusted(pki: _Pki) -> None:
    data = Path(pki.ca).read_text(encoding="ascii")

    both = client_context(ClientTls(ca_file=pki.other_ca, ca_data=data))
    client, _ = _shake(both, server_context(ServerTls(pki.server)))

    assert client.getpeercert()
    assert len(both.get_ca_certs()) == 2


@pytest.mark.parametrize("host", ["other.test", "127.0.0.2"])
def test_wrong_host_name_is_refused(pki: _Pki, host: str) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=r"mismatch|doesn't match|not valid"):
        _shake(
            client_context(ClientTls(ca_file=pki.ca)),
            server_context(ServerTls(pki.server)),
            host,
        )


def test_host_name_check_can_be_switched_off_separately(pki: _Pki) -> None:
    context = client_context(ClientTls(ca_file=pki.ca, check_hostname=False))

    _shake(context, server_context(ServerTls(pki.server)), "other.test")

    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("trusts_system", [True, False])
def test_an_unknown_authority_is_refused(pki: _Pki, trusts_system: bool) -> None:
    settings = ClientTls() if trusts_system else ClientTls(ca_file=pki.other_ca)

    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        _shake(client_context(settings), server_context(ServerTls(pki.server)))


def test_verification_can_be_switched_off(pki: _Pki) -> None:
    blind = client_context(ClientTls(verify=False))
    client, _ = _shake(blind, server_context(ServerTls(pki.server)), "any.test")

    assert client.version() == "TLSv1.3"
    assert not client.getpeercert()  # Python keeps no certificate that it did not check


def test_tls_1_1_is_refused(pki: _Pki) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")

    server = server_context(ServerTls(pki.server))
    # OpenSSL's own level of security must not be what refuses.
    server.set_ciphers("ALL:@SECLEVEL=0")

    with pytest.raises(ssl.SSLError, match=r"(?i)unsupported.protocol|protocol.version"):
        _shake(old, server)


@pytest.mark.parametrize("wanted", [ClientAuth.REQUESTED, ClientAuth.REQUIRED])
def test_a_client_can_show_its_certificate(pki: _Pki, wanted: ClientAuth) -> None:
    _, server = _shake(
        client_context(ClientTls(ca_file=pki.ca, own=pki.client)),
        server_context(ServerTls(pki.server, pki.ca, wanted)),
    )

    certificate = server.getpeercert()
    assert certificate is not None
    assert ("email", "alice@client.test") in certificate["subjectAltName"]


def test_a_required_certificate_must_be_shown(pki: _Pki) -> None:
    with pytest.raises(ssl.SSLError, match=r"(?i)certificate"):
        _shake(
            client_context(ClientTls(ca_file=pki.ca)),
            server_context(ServerTls(pki.server, pki.ca, ClientAuth.REQUIRED)),
        )


def test_requested_certificate_is_optional(pki: _Pki) -> None:
    _, server = _shake(
        client_context(ClientTls(ca_file=pki.ca)),
        server_context(ServerTls(pki.server, pki.ca, ClientAuth.REQUESTED)),
    )

    assert server.getpeercert() is None


@pytest.mark.parametrize("wanted", [ClientAuth.REQUESTED, ClientAuth.REQUIRED])
def test_untrusted_client_certificate_is_refused(pki: _Pki, wanted: ClientAuth) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        _shake(
            client_context(ClientTls(ca_file=pki.ca, own=pki.stranger)),
            server_context(ServerTls(pki.server, pki.ca, wanted)),
        )


def test_client_certificates_need_an_authority(pki: _Pki) -> None:
    with pytest.raises(ConfigError, match=r"tls\.client_ca_file: must be set.*'required'"):
        server_context(ServerTls(pki.server, client_auth=ClientAuth.REQUIRED))


def test_an_encrypted_key_needs_its_password(pki: _Pki) -> None:
    pair = KeyPair(pki.server.certificate_file, pki.encrypted("sesame-7341"), "sesame-7341")

    _shake(client_context(ClientTls(ca_file=pki.ca)), server_context(ServerTls(pair)))

    assert "sesame-7341" not in repr(pair)


@pytest.mark.parametrize(
    ("password", "problem"), [(None, "is not set, but needed"), ("wrong", "is not the right one")]
)
def test_a_wrong_key_password_is_named(pki: _Pki, password: str | None, problem: str) -> None:
    key = pki.encrypted("sesame-7341")
    pair = KeyPair(pki.server.certificate_file, key, password)

    with pytest.raises(ConfigError, match=rf"^tls\.key_password: {problem} for {key}$"):
        server_context(ServerTls(pair))


def test_a_missing_file_is_named(pki: _Pki) -> None:
    missing = "/no/such/file.pem"
    certificate = pki.server.certificate_file

    for settings in (KeyPair(missing), KeyPair(missing, pki.server.key_file)):
        with pytest.raises(ConfigError, match=r"tls\.certificate_file: /no/such/file\.pem: No"):
            server_context(ServerTls(settings))
    with pytest.raises(ConfigError, match=r"tls\.key_file: /no/such/file\.pem: No such file"):
        server_context(ServerTls(KeyPair(certificate, missing)))
    with pytest.raises(ConfigError, match=r"tls\.client_ca_file: /no/such/file\.pem: No such"):
        server_context(ServerTls(pki.server, missing, ClientAuth.REQUIRED))
    with pytest.raises(ConfigError, match=r"tls\.ca_file: /no/such/file\.pem: No such file"):
        client_context(ClientTls(ca_file=missing))


def test_a_file_that_is_not_a_certificate_is_named(pki: _Pki, tmp_path: Path) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("hello", encoding="ascii")

    with pytest.raises(ConfigError, match=rf"tls\.ca_file: {junk}: not in PEM form"):
        client_context(ClientTls(ca_file=str(junk)))
    with pytest.raises(ConfigError, match=rf"tls\.certificate_file: {junk}: not in PEM form"):
        server_context(ServerTls(KeyPair(str(junk))))
    with pytest.raises(ConfigError, match=r"tls\.ca_data: not a certificate"):
        client_context(ClientTls(ca_data="hello"))
    with pytest.raises(ConfigError, match=r"tls\.ca_data: not a certificate"):
        client_context(ClientTls(ca_data=""))


def test_a_key_of_another_certificate_is_named(pki: _Pki) -> None:
    pair = KeyPair(pki.server.certificate_file, pki.client.key_file)

    with pytest.raises(ConfigError, match="the private key does not belong to the certificate"):
        server_context(ServerTls(pair))
