"""One client's HTTP/1.1: bytes to requests, responses to bytes. No I/O; h11 parses and writes.

h11 is lenient where RFC 9112 allows it. This codec rejects some of that input before h11 sees it,
because request smuggling relies on two parsers that read one message differently: folded lines,
bare line feeds, control characters, a repeated Content-Length, transfer encodings. h11 limits a
head only while it is incomplete and does not limit the number of headers, so the head is also
delimited here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote, urlsplit

import h11

from rookery.net.httptext import MAX_FIELDS, HttpRequest, Refusal, Response

_END_OF_HEAD: Final = b"\r\n\r\n"
_LINE: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32} [\x21-\x7e]+ HTTP/([0-9])\.[0-9]")
# Input in a head that h11 accepts and this codec rejects.
_REFUSED: Final = (
    (re.compile(rb"[^\t\r\n\x20-\x7e\x80-\xff]"), "a control character in the headers"),
    (re.compile(rb"(?<!\r)\n|\r(?!\n)"), "lines must end with CR LF"),
    (re.compile(rb"\n[ \t]"), "a header that continues on a second line"),
    (re.compile(rb"(?is)\ncontent-length:.*\ncontent-length:"), "more than one Content-Length"),
)
_FIXED: Final = ((b"Cache-Control", b"no-store"), (b"X-Content-Type-Options", b"nosniff"))


class HttpCodec:
    """The messages of one connection, one request at a time."""

    def __init__(self, max_head_bytes: int, max_body_bytes: int, peer: str) -> None:
        """Begin between requests.

        Args:
            max_head_bytes: the request line and the headers together.
            max_body_bytes: the maximum size of a request's body.
            peer: the client's address.
        """
        self.is_over = False
        """Whether no other request can follow the last response."""
        self._max_head_bytes = max_head_bytes
        self._max_body_bytes = max_body_bytes
        self.peer = peer
        """Added to every request."""
        self._http = h11.Connection(h11.SERVER)
        self._input = bytearray()
        self._looked_at = 0
        # A request whose body is incomplete, and its bytes that h11 has not seen.
        self._head: HttpRequest | None = None
        self._missing = 0
        self._body = bytearray()
        self._is_head = False

    @property
    def has_part(self) -> bool:
        """Whether a part of a request has arrived."""
        return bool(self._input) or self._head is not None

    def receive(self, data: bytes) -> None:
        """Take bytes from the client."""
        self._input += data

    def clear(self) -> None:
        """Drop received bytes that will not be answered."""
        self._input.clear()

    def next_request(self) -> HttpRequest | None:
        """Return the next request if it has arrived whole.

        Raises:
            Refusal: it violates the protocol or a limit, or needs an unsupported feature.
        """
        head = self._head = self._head or self._take_head()
        if head is None or not self._take_body():
            return None
        body = bytes(self._body)
        self._head = None
        self._body.clear()
        return replace(head, body=body)

    def leave_to_send(self) -> bytes:
        """Return the `100 Continue` that a client waits for before sending a body, or nothing."""
        if not self._http.they_are_waiting_for_100_continue:
            return b""
        leave = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
        return self._http.send(leave)

    def send(self, response: Response, *, is_last: bool) -> bytes:
        """Return a response as bytes, and prepare for the next request unless this is the last one.

        Args:
            response: the response; its body is omitted if the request was a HEAD.
            is_last: whether the connection is closed afterwards.

        Raises:
            ValueError: a header would break the message.
        """
        body = b"" if self._is_head else response.body
        try:
            data = self._http.send(_start_of(response, is_last=is_last))
            if body:
                data += self._http.send(h11.Data(body))
            data += self._http.send(h11.EndOfMessage())
        except h11.LocalProtocolError as error:
            raise ValueError(f"the response breaks HTTP: {error}") from error
        self.is_over = (
            self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE
        )
        if not self.is_over:
            self._http.start_next_cycle()
            self._is_head = False
        return data

    def _take_head(self) -> HttpRequest | None:
        data = self._input
        while data.startswith(b"\r\n"):  # some clients end a body with it (RFC 9112, 2.2)
            del data[:2]
        end = self._find_end()
        # Input that is not HTTP is rejected before its end.
        if (line_end := data.find(b"\n")) >= 0:
            _check_line(bytes(data[:line_end]).removesuffix(b"\r"))
        if end < 0:
            return None
        head = bytes(data[: end + len(_END_OF_HEAD)])
        del data[: len(head)]
        return self._parse(head)

    def _find_end(self) -> int:
        data, limit = self._input, self._max_head_bytes
        end = data.find(_END_OF_HEAD, max(0, self._looked_at - len(_END_OF_HEAD)))
        self._looked_at = 0 if end >= 0 else len(data)
        if end <= limit and (end >= 0 or len(data) <= limit):
            return end
        if b"\n" in data[:limit]:
            reason = f"request line and headers exceed {limit} bytes"
            raise Refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, reason)
        raise Refusal(HTTPStatus.REQUEST_URI_TOO_LONG, f"the request line exceeds {limit} bytes")

    def _parse(self, head: bytes) -> HttpRequest:
        for pattern, reason in _REFUSED:
            if pattern.search(head):
                raise Refusal(HTTPStatus.BAD_REQUEST, reason)
        self._http.receive_data(head)
        try:
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            status = HTTPStatus(error.error_status_hint)
            raise Refusal(status, "this request is not valid HTTP/1.1") from error
        if not isinstance(event, h11.Request):
            raise Refusal(HTTPStatus.BAD_REQUEST, "this is not a request")
        self._is_head = event.method == b"HEAD"
        headers = _read_headers(event)
        self._missing = self._body_bytes(headers)
        path, query_text = _read_target(event.target.decode())
        return HttpRequest(event.method.decode(), path, query_text, headers, peer=self.peer)

    def _body_bytes(self, headers: Mapping[str, str]) -> int:
        if "transfer-encoding" in headers:
            raise Refusal(HTTPStatus.LENGTH_REQUIRED, "send a Content-Length, not chunks")
        count = int(headers.get("content-length", "0"))
        if count > self._max_body_bytes:
            reason = f"the body exceeds {self._max_body_bytes} bytes"
            raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)
        return count

    def _take_body(self) -> bool:
        """Pass the received part of the body to h11, without any byte of the next request."""
        if part := bytes(self._input[: self._missing]):
            del self._input[: len(part)]
            self._missing -= len(part)
            self._http.receive_data(part)
        while isinstance(event := self._http.next_event(), h11.Data):
            self._body += event.data
        return isinstance(event, h11.EndOfMessage)


def _check_line(line: bytes) -> None:
    match = _LINE.fullmatch(line)
    if match is None:
        raise Refusal(HTTPStatus.BAD_REQUEST, "this is not HTTP")
    if match[1] != b"1":
        raise Refusal(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1 is supported")


def _read_headers(request: h11.Request) -> dict[str, str]:
    if len(request.headers) > MAX_FIELDS:
        reason = f"more than {MAX_FIELDS} headers"
        raise Refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, reason)
    headers: dict[str, str] = {}
    for raw_name, raw_value in request.headers:
        name, value = raw_name.decode(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if headers.get("expect", "100-continue").lower() != "100-continue":
        raise Refusal(HTTPStatus.EXPECTATION_FAILED, "only 100-continue can be expected")
    return headers


def _read_target(target: str) -> tuple[str, str]:
    try:
        parts = urlsplit(target if not target.startswith("/") else f"http://host{target}")
        path = unquote(parts.path or "/", errors="strict")
    except ValueError:
        raise Refusal(HTTPStatus.BAD_REQUEST, "the path is malformed") from None
    # The absolute form is for proxies, but servers must accept it (RFC 9112, 3.2.2).
    if parts.scheme not in {"http", "https"} or not path.startswith("/"):
        raise Refusal(HTTPStatus.BAD_REQUEST, "the target is not a path")
    return path, parts.query


def _start_of(response: Response, *, is_last: bool) -> h11.Response:
    fields = {"Content-Type": response.content_type, **response.headers}
    return h11.Response(
        status_code=response.status.value,
        reason=response.status.phrase.encode(),
        headers=[
            (b"Content-Length", b"%d" % len(response.body)),
            *((name.encode(), value.encode()) for name, value in fields.items()),
            *_FIXED,
            (b"Connection", b"close" if is_last else b"keep-alive"),
        ],
    )
