"""Names in certificates are read and printed as in Java."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import ProtocolError
from rookery.security.distinguishedname import format_name, read_subject
from tests.security.dercases import NAMES, UTF8, Name, common, name, value


@pytest.mark.parametrize(("parts", "text"), NAMES)
def test_names_are_printed_as_java_prints_them(parts: Name, text: str) -> None:
    assert format_name(name(parts)) == text


@pytest.fixture(scope="module")
def certificate() -> x509.Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    subject = x509.Name.from_rfc4514_string("CN=alice,OU=Ops\\, EU,O=Example,C=DE")
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.Name.from_rfc4514_string("CN=ca"))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )


def test_the_subject_of_a_certificate_is_found(certificate: x509.Certificate) -> None:
    encoded = certificate.public_bytes(serialization.Encoding.DER)

    assert read_subject(encoded) == certificate.subject.public_bytes()
    assert format_name(read_subject(encoded)) == "CN=alice,OU=Ops\\, EU,O=Example,C=DE"


def test_a_certificate_that_is_cut_off_is_refused(certificate: x509.Certificate) -> None:
    encoded = certificate.public_bytes(serialization.Encoding.DER)

    for size in range(len(encoded)):
        with pytest.raises(ProtocolError):
            read_subject(encoded[:size])


def test_endless_number_of_an_object_id_is_refused() -> None:
    object_id = value(0x06, b"\x55" + b"\xff" * 3_000 + b"\x7f")
    attribute = value(0x30, object_id + value(UTF8, b"alice"))

    with pytest.raises(ProtocolError, match="object id"):
        format_name(value(0x30, value(0x31, attribute)))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (format_name, read_subject):
        try:
            read(data)
        except ProtocolError:
            continue


@given(st.data())
def test_damaged_names_are_read_or_refused(data: st.DataObject) -> None:
    encoded = bytearray(name([*NAMES[1][0], *common("a,b")]))
    place = data.draw(st.integers(0, len(encoded) - 1))
    encoded[place] = data.draw(st.integers(0, 255))

    try:
        assert isinstance(format_name(bytes(encoded)), str)
    except ProtocolError:
        return
