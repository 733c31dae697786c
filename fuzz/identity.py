"""Fuzz how a certificate becomes a user: `python fuzz/identity.py -max_total_time=60`.

Any rules are compiled or give a ConfigError; any encoded name is printed or gives a ProtocolError;
and compiled rules map any name.
"""

from __future__ import annotations

import contextlib
import sys

import atheris

with atheris.instrument_imports(include=["rookery"]):
    from rookery.errors import ConfigError, ProtocolError
    from rookery.security.distinguishedname import format_name, read_subject
    from rookery.security.principal import PrincipalMapping, parse_super_users

_PIECES = [
    "RULE:", "DEFAULT", "/", "/L", "/U", ",", "^CN=(.*?),", ".*$", "$1", "${name}", "$0", "$99",
    "\\", "\\/", "(?P<name>.*)", "(", ")", "[", "*", "+?", "{1,1000}", "(?=", "\n", " ", "$", "\0",
    "CN=alice,OU=users,O=rookery", "\ud800", "é", "(.*)", "()", "|", "User:", ";", ":",
]  # fmt: skip
_OIDS = [b"\x55\x04\x03", b"\x55\x04\x0a", b"\x2a\x03\x04", b"\x80" * 4, b"\xff" * 3000 + b"\x7f"]
_TAGS = [0x02, 0x05, 0x06, 0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E, 0x30, 0x31, 0xA0]


def _text(data: atheris.FuzzedDataProvider) -> str:
    parts = []
    for _ in range(data.ConsumeIntInRange(0, 10)):
        is_known = data.ConsumeBool()
        parts.append(data.PickValueInList(_PIECES) if is_known else data.ConsumeUnicode(12))
    return "".join(parts)


def _length(size: int) -> bytes:
    if size < 0x80:
        return bytes([size])
    return b"\x82" + size.to_bytes(2, "big")


def _value(data: atheris.FuzzedDataProvider, tag: int, content: bytes) -> bytes:
    """Encode a value, sometimes with another type or a wrong length."""
    if data.ConsumeIntInRange(0, 7) == 0:
        tag = data.PickValueInList(_TAGS)
    if data.ConsumeIntInRange(0, 7) == 0:
        return bytes([tag]) + data.ConsumeBytes(data.ConsumeIntInRange(0, 6)) + content
    return bytes([tag]) + _length(len(content)) + content


def _attribute(data: atheris.FuzzedDataProvider) -> bytes:
    is_known = data.ConsumeBool()
    oid = data.PickValueInList(_OIDS) if is_known else data.ConsumeBytes(8)
    text = data.ConsumeBytes(data.ConsumeIntInRange(0, 16))
    pair = _value(data, 0x06, oid) + _value(data, data.PickValueInList(_TAGS), text)
    return _value(data, 0x30, pair)


def _name(data: atheris.FuzzedDataProvider) -> bytes:
    parts = [
        _value(data, 0x31, b"".join(_attribute(data) for _ in range(data.ConsumeIntInRange(0, 2))))
        for _ in range(data.ConsumeIntInRange(0, 4))
    ]
    return _value(data, 0x30, b"".join(parts))


def _check_name(data: atheris.FuzzedDataProvider) -> None:
    name = _name(data)
    # Version, serial number, signature algorithm, issuer, validity, then the subject.
    fields = [_value(data, tag, b"") for tag in (0xA0, 0x02, 0x30, 0x30, 0x30)]
    certificate = _value(data, 0x30, _value(data, 0x30, b"".join(fields) + name))
    with contextlib.suppress(ProtocolError):
        format_name(name)
    with contextlib.suppress(ProtocolError):
        format_name(read_subject(certificate))
    with contextlib.suppress(ProtocolError):
        format_name(read_subject(data.ConsumeBytes(200)))


def _check_rules(data: atheris.FuzzedDataProvider) -> None:
    with contextlib.suppress(ConfigError):
        parse_super_users(_text(data))
    try:
        mapping = PrincipalMapping(_text(data))
    except ConfigError:
        return
    mapping.apply(_text(data))


def test_one_input(raw: bytes) -> None:
    """Print one name, or compile and apply one list of rules."""
    data = atheris.FuzzedDataProvider(raw)
    if data.ConsumeBool():
        _check_name(data)
    else:
        _check_rules(data)


def main() -> None:
    """Fuzz until told to stop."""
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
