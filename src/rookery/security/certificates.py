"""A small certificate authority, for clusters that have none: `rookery certs`, `broker --secure`.

Keys are EC P-256. An identity is one PEM file that holds the private key and then the certificate,
so that replacing the file replaces both at once. Java (`ssl.keystore.type=PEM`), librdkafka and
`security.tls.KeyPair` read that form.

The authority is such a file, too, next to `ca.pem` with its certificate alone. A reader
of `ca-key.pem` can become any user and any broker.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rookery.clock import Random, Time
from rookery.errors import ConfigError
from rookery.security.distinguishedname import format_name
from rookery.security.privatefile import create_private, replace_private

CA_CERTIFICATE: Final = "ca.pem"
"""The certificate of the authority, for those who trust it."""
CA_IDENTITY: Final = "ca-key.pem"
"""The key of the authority and its certificate."""
CA_DAYS: Final = 3_650
"""How long an authority is valid."""
CERTIFICATE_DAYS: Final = 397
"""How long other certificates are valid; some clients refuse more for servers."""
MAX_COMMON_NAME: Final = 64
"""The maximum length of a common name in characters (X.520)."""

_SKEW: Final = datetime.timedelta(hours=1)
"""Certificates begin before they are issued, for peers whose clocks are slow."""
_SERIAL_BYTES: Final = 16
_HOST: Final = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_-]+)*")
_MAX_HOST: Final = 253


@dataclass(frozen=True, slots=True)
class PemIdentity:
    """A private key and its certificate, as one PEM text."""

    certificate: bytes
    key: bytes = field(repr=False)

    def write(self, folder: Path, name: str) -> Path:
        """Write or replace `<name>.pem`, readable by its owner only.

        Raises:
            ConfigError: the file cannot be written.
        """
        return replace_private(folder / f"{name}.pem", self.key + self.certificate)


class CertificateAuthority:
    """A certificate authority and its key."""

    __slots__ = ("_certificate", "_key", "_random")

    def __init__(
        self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, random: Random
    ) -> None:
        """Use an existing authority. `create` and `load` are the usual ways to one."""
        self._certificate = certificate
        self._key = key
        self._random = random

    @classmethod
    def create(cls, name: str, now: Time, random: Random) -> CertificateAuthority:
        """Make a new authority; `write` stores it.

        Raises:
            ConfigError: the name is empty or too long.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _common_name(name)
        certificate = (
            _builder(subject, subject, key.public_key(), random)
            .not_valid_before(_moment(now) - _SKEW)
            .not_valid_after(_moment(now) + datetime.timedelta(days=CA_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key, random)

    @classmethod
    def load(cls, folder: Path, random: Random) -> CertificateAuthority:
        """Read the authority that `write` stored.

        Raises:
            ConfigError: a file is missing, or not what it should be.
        """
        path = folder / CA_IDENTITY
        data = _read(path)
        try:
            key = serialization.load_pem_private_key(data, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise ConfigError(f"not an unencrypted private key: {error}", name=str(path)) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ConfigError("not a key of an elliptic curve", name=str(path))
        certificate = _load_certificates(data, path)[0]
        if certificate.public_key() != key.public_key():
            raise ConfigError("the key does not belong to the certificate", name=str(path))
        return cls(certificate, key, random)

    @property
    def certificate(self) -> bytes:
        """The authority's own certificate as PEM text, for those who trust it."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def write(self, folder: Path) -> Path:
        """Store a new authority in a folder, and return the path of its certificate.

        Raises:
            ConfigError: the folder has an authority already, or cannot be written.
        """
        create_private(folder / CA_IDENTITY, _key_text(self._key) + self.certificate)
        return self.publish(folder)

    def publish(self, folder: Path) -> Path:
        """Write or replace the file with the certificate alone, and return its path.

        Raises:
            ConfigError: the file cannot be written.
        """
        return replace_private(folder / CA_CERTIFICATE, self.certificate)

    def issue_server(self, hosts: Sequence[str], now: Time) -> PemIdentity:
        """Issue a certificate for a broker; it can also be used to connect to other brokers.

        Args:
            hosts: names and IP addresses that clients connect to; the first is the common name.
            now: the time.

        Raises:
            ConfigError: there are no hosts, one is neither a name nor an address, or the authority
                has expired.
        """
        if not hosts:
            raise ConfigError("a server's certificate needs at least one name or address")
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        common_name = next((host for host in hosts if len(host) <= MAX_COMMON_NAME), "broker")
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._issue(common_name, now, usages, names)

    def issue_client(self, user: str, now: Time) -> PemIdentity:
        """Issue a certificate for a user; by default, its principal is `User:CN=<user>`.

        Raises:
            ConfigError: the name is empty or too long, or the authority has expired.
        """
        return self._issue(user, now, [ExtendedKeyUsageOID.CLIENT_AUTH], None)

    def _issue(
        self,
        common_name: str,
        now: Time,
        usages: list[x509.ObjectIdentifier],
        names: x509.SubjectAlternativeName | None,
    ) -> PemIdentity:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self._certificate
        if _moment(now) >= issuer.not_valid_after_utc:
            raise ConfigError(f"the authority expired on {issuer.not_valid_after_utc:%Y-%m-%d}")
        expiry = _moment(now) + datetime.timedelta(days=CERTIFICATE_DAYS)
        builder = (
            _builder(_common_name(common_name), issuer.subject, key.public_key(), self._random)
            .not_valid_before(max(_moment(now) - _SKEW, issuer.not_valid_before_utc))
            .not_valid_after(min(expiry, issuer.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return PemIdentity(certificate.public_bytes(serialization.Encoding.PEM), _key_text(key))


@dataclass(frozen=True, slots=True)
class CertificateDescription:
    """What `rookery certs show` prints about a certificate."""

    subject: str
    """As in the principal of a client with this certificate."""
    issuer: str
    names: tuple[str, ...]
    """The host names and addresses it is valid for."""
    valid_from: Time
    expires: Time
    fingerprint: str
    """SHA-256, in hexadecimal with colons, as other tools print it."""
    is_authority: bool

    def days_left(self, now: Time) -> int:
        """Return the number of full days until it expires; negative if it has expired."""
        return (self.expires - now) // 86_400_000


def describe_certificates(path: Path) -> list[CertificateDescription]:
    """Describe the certificates in a PEM file, in their order.

    Raises:
        ConfigError: the file cannot be read, or has no certificate.
    """
    return [_describe(certificate) for certificate in _load_certificates(_read(path), path)]


def _describe(certificate: x509.Certificate) -> CertificateDescription:
    return CertificateDescription(
        subject=format_name(certificate.subject.public_bytes()),
        issuer=format_name(certificate.issuer.public_bytes()),
        names=_names(certificate),
        valid_from=_time(certificate.not_valid_before_utc),
        expires=_time(certificate.not_valid_after_utc),
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(":").upper(),
        is_authority=_is_authority(certificate),
    )


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    names = extension.value
    addresses = names.get_values_for_type(x509.IPAddress)
    return (*names.get_values_for_type(x509.DNSName), *map(str, addresses))


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, random: Random
) -> x509.CertificateBuilder:
    # Zero is not allowed.
    serial = int.from_bytes(random.token(_SERIAL_BYTES), "big") | 1
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(serial)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _common_name(text: str) -> x509.Name:
    if not 1 <= len(text) <= MAX_COMMON_NAME or "\0" in text:
        raise ConfigError(
            f"a certificate's name must have 1 to {MAX_COMMON_NAME} characters, not {text!r}"
        )
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if len(host) > _MAX_HOST or not _HOST.fullmatch(host):
        raise ConfigError(
            f"{host!r} is neither a host name nor an IP address; write names with other letters in "
            "their ASCII form (xn--…)"
        )
    return x509.DNSName(host)


def _load_certificates(data: bytes, path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise ConfigError(f"no certificate in PEM form: {error}", name=str(path)) from None


def _key_text(key: ec.EllipticCurvePrivateKey) -> bytes:
    # Java reads private keys as PKCS #8 only.
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(error.strerror or str(error), name=str(path)) from error


def _moment(time: Time) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(time // 1_000, datetime.UTC)


def _time(moment: datetime.datetime) -> Time:
    return Time(int(moment.timestamp()) * 1_000)
