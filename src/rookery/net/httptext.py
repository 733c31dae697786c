"""HTTP/1.1 messages as bytes (RFC 9112): heads are parsed strictly, answers written. No I/O.

Strict, because a message that two parsers read in two ways is how requests are smuggled: no folded
lines, no bare line feeds, one length, no other transfer encoding.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

END_OF_HEAD: Final = b"\r\n\r\n"
"""What stands between a head and its body."""

_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_LINE = re.compile(rb"(%b{1,32}) ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])" % _TOKEN)
_HEADER = re.compile(rb"(%b+):[ \t]*([\t\x20-\x7e\x80-\xff]*)" % _TOKEN)
_LENGTH = re.compile(r"[0-9]{1,18}")
_MAX_FIELDS: Final = 100
_FIXED: Final = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asks for."""

    method: str
    path: str
    """Without the query, percent-decoded."""
    query_text: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """By lower-case name; repeated ones are joined by commas."""
    body: bytes = b""
    peer: str = ""
    """The client's address."""

    @property
    def query(self) -> dict[str, str]:
        """The query's parameters; the last one of a name counts.

        Raises:
            Refusal: there are too many.
        """
        try:
            found = parse_qs(self.query_text, keep_blank_values=True, max_num_fields=_MAX_FIELDS)
        except ValueError:
            raise Refusal(HTTPStatus.BAD_REQUEST, "too many parameters") from None
        return {name: values[-1] for name, values in found.items()}


@dataclass(frozen=True, slots=True)
class Response:
    """What is answered."""

    body: bytes = b""
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


def as_text(body: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Answer with plain text."""
    return Response(body.encode(errors="replace"), status)


def as_json(value: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Answer with JSON."""
    return Response(json.dumps(value).encode() + b"\n", status, "application/json")


FAILED: Final = as_text("internal error\n", HTTPStatus.INTERNAL_SERVER_ERROR)
"""All that a client learns when something of ours breaks."""


class Refusal(Exception):  # noqa: N818 (it is an answer)
    """A request that is answered with an error; a route may raise it, too."""

    def __init__(
        self, status: HTTPStatus, reason: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(reason)
        self.response = Response(f"{reason}\n".encode(), status, headers=headers or {})


@dataclass(frozen=True, slots=True)
class Head:
    """A request before its body has come."""

    method: str
    path: str
    query_text: str
    headers: Mapping[str, str]
    body_bytes: int
    is_last: bool
    """Whether the client wants no other request on this connection."""

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for leave to send the body."""
        return "expect" in self.headers

    def with_body(self, body: bytes, peer: str) -> Request:
        """Make the whole request."""
        return Request(self.method, self.path, self.query_text, self.headers, body, peer)


def parse_line(line: bytes) -> tuple[str, str, int]:
    """Read a request line: the method, the target, and the minor version of HTTP/1.

    Raises:
        Refusal: it is none, or of another version.
    """
    match = _LINE.fullmatch(line)
    if match is None:
        raise Refusal(HTTPStatus.BAD_REQUEST, "this is not HTTP")
    method, target, major, minor = match.groups()
    if major != b"1":
        raise Refusal(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1 is spoken here")
    return method.decode(), target.decode(), int(minor)


def parse_head(head: bytes) -> Head:
    """Read a request line and headers.

    Raises:
        Refusal: they break the rules, or ask for what we do not do.
    """
    line, *rest = head.split(b"\r\n")
    method, target, minor = parse_line(line)
    headers = _parse_headers(rest)
    if minor >= 1 and "host" not in headers:
        raise Refusal(HTTPStatus.BAD_REQUEST, "the Host header is missing")
    if headers.get("expect", "100-continue").lower() != "100-continue":
        raise Refusal(HTTPStatus.EXPECTATION_FAILED, "only 100-continue can be expected")
    path, query_text = _parse_target(target)
    wishes = {wish.strip().lower() for wish in headers.get("connection", "").split(",")}
    is_last = "close" in wishes or (minor == 0 and "keep-alive" not in wishes)
    return Head(method, path, query_text, headers, _body_bytes(headers), is_last)


def too_large(head: bytes, limit: int) -> Refusal:
    """Say which part of a head is above the limit."""
    if b"\n" in head[:limit]:
        reason = f"request line and headers may have {limit} bytes"
        return Refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, reason)
    return Refusal(HTTPStatus.REQUEST_URI_TOO_LONG, f"the request line is above {limit} bytes")


def format_head(response: Response, *, is_last: bool) -> bytes:
    """Write what goes before an answer's body.

    Raises:
        ValueError: a header would break the message.
    """
    status = response.status
    fields = {"Content-Type": response.content_type, **response.headers}
    for name, value in fields.items():
        if not _HEADER.fullmatch(f"{name}: {value}".encode()):
            raise ValueError(f"the header {name!r} cannot be {value!r}")
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    end = "Connection: close\r\n\r\n" if is_last else "Connection: keep-alive\r\n\r\n"
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Length: {len(response.body)}\r\n{lines}{_FIXED}{end}"
    ).encode()


def _parse_headers(lines: list[bytes]) -> dict[str, str]:
    if len(lines) > _MAX_FIELDS:
        reason = f"more than {_MAX_FIELDS} headers"
        raise Refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, reason)
    headers: dict[str, str] = {}
    for line in lines:
        match = _HEADER.fullmatch(line)
        if match is None:
            raise Refusal(HTTPStatus.BAD_REQUEST, "a header is malformed")
        name, value = match[1].decode().lower(), match[2].decode("latin-1").rstrip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _parse_target(target: str) -> tuple[str, str]:
    try:
        parts = urlsplit(target if not target.startswith("/") else f"http://host{target}")
        path = unquote(parts.path or "/", errors="strict")
    except ValueError:
        raise Refusal(HTTPStatus.BAD_REQUEST, "the path is malformed") from None
    # The absolute form is for proxies, but servers must take it (RFC 9112, 3.2.2).
    if parts.scheme not in {"http", "https"} or not path.startswith("/"):
        raise Refusal(HTTPStatus.BAD_REQUEST, "the target is not a path")
    return path, parts.query


def _body_bytes(headers: Mapping[str, str]) -> int:
    if "transfer-encoding" in headers:
        raise Refusal(HTTPStatus.LENGTH_REQUIRED, "send a Content-Length, not chunks")
    length = headers.get("content-length", "0")
    if not _LENGTH.fullmatch(length):
        raise Refusal(HTTPStatus.BAD_REQUEST, "Content-Length is not one number")
    return int(length)
