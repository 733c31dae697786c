"""Distinguished names of certificates as text, in the form of RFC 2253 that Java prints.

Kafka makes the principal of an mTLS client from `X500Principal.getName()`, so rules and mappings
depend on every detail of it. The order is reversed. Only nine attributes have short names; the
others are printed as the bytes of their encoding. OpenSSL and `cryptography` print names
differently, so this module reads the encoding (DER) itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from rookery.errors import ProtocolError

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_SEQUENCE, _SET, _OBJECT_ID, _VERSION = 0x30, 0x31, 0x06, 0xA0
_UTF8, _PRINTABLE, _T61, _IA5, _GENERAL, _BMP = 0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E
_STRINGS: Final = frozenset({_UTF8, _PRINTABLE, _T61, _IA5, _GENERAL, _BMP})
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_SPACES: Final = " \r"
_MAX_OBJECT_ID: Final = 1_024
"""Bytes of an object id; longer numbers take quadratic time to print."""


class _Value(NamedTuple):
    """One value of an encoding."""

    tag: int
    content: bytes
    encoded: bytes
    """The whole value, with its tag and length."""


def read_subject(certificate: bytes) -> bytes:
    """Return the encoded subject of a certificate in DER form.

    Raises:
        ProtocolError: it is not a certificate.
    """
    signed = _only(certificate, _SEQUENCE)
    fields = list(_values(_first(signed.content, _SEQUENCE).content))
    if fields and fields[0].tag == _VERSION:
        fields = fields[1:]
    # Serial number, signature algorithm, issuer, validity, subject.
    if len(fields) < 5 or fields[4].tag != _SEQUENCE:
        raise ProtocolError("the certificate has no subject")
    return fields[4].encoded


def format_name(name: bytes) -> str:
    """Return an encoded name as text.

    Raises:
        ProtocolError: it is not a distinguished name.
    """
    parts = [_format_part(part) for part in _values(_only(name, _SEQUENCE).content)]
    return ",".join(reversed(parts))


def _format_part(part: _Value) -> str:
    """Return one part of a name; it has several attributes if it is multi-valued."""
    if part.tag != _SET:
        raise ProtocolError("a part of a distinguished name is not a set")
    return "+".join(_format_attribute(attribute) for attribute in _values(part.content))


def _format_attribute(attribute: _Value) -> str:
    fields = list(_values(attribute.content)) if attribute.tag == _SEQUENCE else []
    if len(fields) != 2 or fields[0].tag != _OBJECT_ID:
        raise ProtocolError("an attribute of a distinguished name is not a type and a value")
    object_id = _format_object_id(fields[0].content)
    value = fields[1]
    keyword = _KEYWORDS.get(object_id)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or object_id}=#{value.encoded.hex()}"
    # Java decodes every type of string as UTF-8.
    return f"{keyword}={_escape(value.content.decode('utf-8', errors='replace'))}"


def _escape(text: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in _ESCAPED else letter for letter in text)
    escaped = escaped.replace("\0", "\\00")
    inner = escaped.lstrip(_SPACES)
    lead = len(escaped) - len(inner)
    inner = inner.rstrip(_SPACES)
    tail = escaped[lead + len(inner) :]
    return _escape_each(escaped[:lead]) + inner + _escape_each(tail)


def _escape_each(spaces: str) -> str:
    return "".join(f"\\{space}" for space in spaces)


def _format_object_id(content: bytes) -> str:
    if len(content) > _MAX_OBJECT_ID:
        raise ProtocolError("an object id is too long")
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers or content[-1] & 0x80:
        raise ProtocolError("an object id is cut off")
    root = min(numbers[0] // 40, 2)
    return ".".join(map(str, (root, numbers[0] - 40 * root, *numbers[1:])))


def _only(data: bytes, tag: int) -> _Value:
    value = _first(data, tag)
    if len(value.encoded) != len(data):
        raise ProtocolError("the encoding continues after its end")
    return value


def _first(data: bytes, tag: int) -> _Value:
    value = next(_values(data), None)
    if value is None or value.tag != tag:
        raise ProtocolError(f"the encoding does not begin with a value of type {tag:#x}")
    return value


def _values(data: bytes) -> Iterator[_Value]:
    """Return the values that follow each other in an encoding."""
    start = 0
    while start < len(data):
        content, end = _bounds(data, start)
        if end > len(data):
            raise ProtocolError("the encoding is cut off")
        yield _Value(data[start], data[content:end], data[start:end])
        start = end


def _bounds(data: bytes, start: int) -> tuple[int, int]:
    """Return where the content of a value begins and ends."""
    head = data[start + 1 : start + 2]
    if not head:
        raise ProtocolError("the encoding is cut off")
    if head[0] < 0x80:
        return start + 2, start + 2 + head[0]
    size = head[0] & 0x7F
    # A length of 4 bytes is more than any certificate has; no length at all is not DER.
    if not 1 <= size <= 4 or len(data) < start + 2 + size:
        raise ProtocolError("the encoding has an invalid length")
    content = start + 2 + size
    return content, content + int.from_bytes(data[start + 2 : content], "big")
