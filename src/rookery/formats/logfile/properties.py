"""Java's properties files: `server.properties`, `meta.properties`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from rookery.errors import Corrupt

_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|u|.)", re.DOTALL)
_NAMED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SPACE: Final = " \t\f"


def parse_properties(text: str, name: str = "properties") -> dict[str, str]:
    r"""Read settings by key; if a key is set twice, the last value is used.

    Raises:
        Corrupt: a `\u` is not followed by four hexadecimal digits.
    """
    properties = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        properties[_unescape(key, name)] = _unescape(value, name)
    return properties


def format_properties(values: Mapping[str, str], comment: str = "") -> str:
    """Write settings as Java does, in the order given."""
    head = "".join(f"#{line}\n" for line in comment.split("\n"))
    rows = (f"{_escape(key, '=: #!')}={_escape(value, '')}\n" for key, value in values.items())
    return head + "".join(rows)


def _logical_lines(text: str) -> Iterator[str]:
    """Join lines that are continued by a backslash; skip comments and empty lines."""
    whole = ""
    for line in re.split(r"\r\n|\r|\n", text):
        part = line.lstrip(_SPACE)
        if not whole and (not part or part[0] in "#!"):
            continue
        whole += part
        if (len(whole) - len(whole.rstrip("\\"))) % 2:
            whole = whole[:-1]
            continue
        yield whole
        whole = ""
    if whole:
        yield whole


def _split(line: str) -> tuple[str, str]:
    at = 0
    while at < len(line) and line[at] not in "=: \t\f":
        at += 2 if line[at] == "\\" else 1
    rest = line[at:].lstrip(_SPACE)
    if rest[:1] in {"=", ":"}:
        rest = rest[1:].lstrip(_SPACE)
    return line[:at], rest


def _unescape(text: str, name: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code = match[1]
        if code == "u":
            raise Corrupt(f"a \\u needs four hexadecimal digits in {text[:60]!r}", name=name)
        if len(code) > 1:
            return chr(int(code[1:], 16))
        return _NAMED.get(code, code)

    # Java writes a character beyond 16 bits as two escapes, which must be joined.
    units = _ESCAPE.sub(plain, text)
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, special: str) -> str:
    out = []
    for at, letter in enumerate(text):
        if letter in special or letter == "\\" or (letter == " " and at == 0):
            out.append(f"\\{letter}")
        elif " " <= letter <= "~":
            out.append(letter)
        else:
            units = letter.encode("utf-16-be")
            out += [f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2)]
    return "".join(out)
