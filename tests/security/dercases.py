"""Encoded names: a small writer of DER, and a table of names with Java's output for them."""

from __future__ import annotations

from typing import Final

UTF8, PRINTABLE, T61, IA5, GENERAL, BMP, UNIVERSAL, NUMERIC, BITS = (
    0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E, 0x1C, 0x12, 0x03,
)  # fmt: skip
CN, C, L, ST, STREET, ORG, OU = (f"2.5.4.{number}" for number in (3, 6, 7, 8, 9, 10, 11))
UID, DC = "0.9.2342.19200300.100.1.1", "0.9.2342.19200300.100.1.25"
SERIAL, TITLE, GIVEN_NAME = "2.5.4.5", "2.5.4.12", "2.5.4.42"
EMAIL = "1.2.840.113549.1.9.1"

Attribute = tuple[str, int, bytes]
Name = list[list[Attribute]]


def value(tag: int, content: bytes) -> bytes:
    """Encode one value."""
    if len(content) < 0x80:
        return bytes([tag, len(content)]) + content
    size = len(content).to_bytes((len(content).bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(size)]) + size + content


def object_id(text: str) -> bytes:
    first, second, *rest = map(int, text.split("."))
    content = b""
    for number in (40 * first + second, *rest):
        groups = [number & 0x7F]
        while number := number >> 7:
            groups.append(0x80 | number & 0x7F)
        content += bytes(reversed(groups))
    return value(0x06, content)


def name(parts: Name) -> bytes:
    """Encode a name whose parts have the given attributes."""
    return value(
        0x30,
        b"".join(
            value(
                0x31,
                b"".join(
                    value(0x30, object_id(kind) + value(tag, content))
                    for kind, tag, content in part
                ),
            )
            for part in parts
        ),
    )


def common(text: str) -> Name:
    return [[(CN, UTF8, text.encode())]]


NAMES: Final[list[tuple[Name, str]]] = [
    ([], ""),
    (
        [
            [(C, PRINTABLE, b"DE")],
            [(ST, UTF8, b"Bavaria")],
            [(L, UTF8, "München".encode())],
            [(ORG, UTF8, b"Example GmbH")],
            [(OU, UTF8, b"Ops")],
            [(CN, UTF8, b"broker-1.example.com")],
        ],
        "CN=broker-1.example.com,OU=Ops,O=Example GmbH,L=München,ST=Bavaria,C=DE",
    ),
    (
        [
            [(DC, IA5, b"com")],
            [(DC, IA5, b"example")],
            [(UID, UTF8, b"alice")],
            [(STREET, UTF8, b"Main St 1")],
        ],
        "STREET=Main St 1,UID=alice,DC=example,DC=com",
    ),
    ([[(CN, UTF8, b"alice"), (UID, UTF8, b"a1")], [(ORG, UTF8, b"x")]], "O=x,CN=alice+UID=a1"),
    ([[(UID, UTF8, b"a1"), (CN, UTF8, b"alice")]], "UID=a1+CN=alice"),
    (
        [[(EMAIL, IA5, b"a@b.c")], [(CN, UTF8, b"x")]],
        "CN=x,1.2.840.113549.1.9.1=#16056140622e63",
    ),
    (
        [[(SERIAL, PRINTABLE, b"12")], [(TITLE, UTF8, b"Dr")], [(GIVEN_NAME, UTF8, b"Al")]],
        "2.5.4.42=#0c02416c,2.5.4.12=#0c024472,2.5.4.5=#13023132",
    ),
    ([[("1.3.6.1.4.1.99999.1", UTF8, b"v")]], "1.3.6.1.4.1.99999.1=#0c0176"),
    ([[("2.999.3", UTF8, b"v")]], "2.999.3=#0c0176"),
    (common("a,b"), "CN=a\\,b"),
    (common("a+b"), "CN=a\\+b"),
    (common('a"b'), 'CN=a\\"b'),
    (common("a\\b"), "CN=a\\\\b"),
    (common("a<b>c"), "CN=a\\<b\\>c"),
    (common("a;b"), "CN=a\\;b"),
    (common("#a"), "CN=\\#a"),
    (common("a#b"), "CN=a\\#b"),
    (common("a=b"), "CN=a\\=b"),
    (common(" a"), "CN=\\ a"),
    (common("a "), "CN=a\\ "),
    (common("  a  "), "CN=\\ \\ a\\ \\ "),
    (common(" "), "CN=\\ "),
    (common(""), "CN="),
    (common(" # "), "CN=\\ \\#\\ "),
    (common("a  b"), "CN=a  b"),
    (common("a\0b"), "CN=a\\00b"),
    (common("a\nb"), "CN=a\nb"),
    (common("\ra\r"), "CN=\\\ra\\\r"),
    (common("\ta\t"), "CN=\ta\t"),
    (common("日本😀"), "CN=日本😀"),
    (common("a\u00a0"), "CN=a\u00a0"),
    (common("a/b'*:~|"), "CN=a/b'*:~|"),
    (common("x" * 300), "CN=" + "x" * 300),
    ([[(CN, T61, b"t\xe9st")]], "CN=t\ufffdst"),
    ([[(CN, BMP, "ab".encode("utf-16-be"))]], "CN=\\00a\\00b"),
    ([[(CN, UNIVERSAL, "ab".encode("utf-32-be"))]], "CN=#1c080000006100000062"),
    ([[(CN, GENERAL, b"gen")]], "CN=gen"),
    ([[(CN, IA5, b"ia5,x")]], "CN=ia5\\,x"),
    ([[(CN, NUMERIC, b"12")]], "CN=#12023132"),
    ([[(CN, BITS, b"\0\1")]], "CN=#03020001"),
    ([[(CN, UTF8, b"bad\xff\xfe")]], "CN=bad\ufffd\ufffd"),
]
"""Names by their parts, and the text of Java 17. `test_oracle.py` compares it with Java again."""

LONG: Final = "CN=Duke, OU=ServiceUsers, O=Org, C=US".replace(", ", ",")
RULES: Final[list[tuple[str, str, str | None]]] = [
    ("DEFAULT", LONG, LONG),
    ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", LONG, "Duke"),
    ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", LONG, "duke"),
    ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/U", LONG, "DUKE"),
    ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/L,DEFAULT", LONG, "duke@serviceusers"),
    ("RULE:^CN=(.*?),OU=Other.*$/$1/, DEFAULT", LONG, LONG),
    ("RULE:^CN=(.*?),OU=Other.*$/$1/", LONG, None),
    ("RULE:^cn=(.*?),ou=Other.*$/$1/,  RULE:^CN=(.*?),.*$/u-$1/ ,DEFAULT", LONG, "u-Duke"),
    ("RULE:CN=Duke/x/", LONG, None),
    ("RULE:.*/x/", LONG, "xx"),
    ("RULE:^.*$/x/", LONG, "x"),
    ("RULE:^CN=(.*?),.*$/$1$2/", LONG, "Duke$2"),
    ("RULE:^CN=(.*?),.*$/$12/", LONG, "Duke2"),
    ("RULE:^CN=(.*?),.*$/$0!/", "CN=a,b", "CN=a,b!"),
    ("RULE:^CN=(.*?),.*$/$01/", "CN=a,b", "a"),
    ("RULE:^CN=(.*?),.*$/\\$1/", LONG, "$1"),
    ("RULE:^CN=(?<user>.*?),.*$/${user}-x/", LONG, "Duke-x"),
    ("RULE:^CN=(a)?(.*?),.*$/[$1]$2/", LONG, "[]Duke"),
    ("RULE:^CN=a\\/b$/slash\\/ed/", "CN=a/b", "slash/ed"),
    ("RULE:^CN=(.*)\\\\,(.*)$/$2 $1/", "CN=Duke\\,John", "John Duke"),
    ("RULE:a|ab/x/", "ab", "xb"),
    ("RULE:^CN=(.*?),OU=(.*?),.*$/$2.$1/L", "CN=Ärger,OU=ÉCOLE,C=F", "école.ärger"),
    ("RULE:^CN=(.*)$//", "CN=a", ""),
    ("", LONG, None),
    (" , ,DEFAULT", LONG, LONG),
    ("DEFAULT,RULE:.*/x/", LONG, LONG),
]
"""Rules, a name, and the result of Kafka 4.3.1."""

INVALID_RULES: Final = [
    "foo",
    "default",
    "RULE:",
    "RULE:abc",
    "RULE:a/b",
    "RULE:a/b/LU",
    "RULE:a/b/x",
    "RULE:a/b/L DEFAULT",
    "RULE:(a/b/",
    "RULE:[a/b/",
]
"""Rules that Kafka 4.3.1 refuses."""
