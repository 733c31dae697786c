"""The HTTP codec: any bytes are parsed or refused."""

from __future__ import annotations

from contextlib import suppress
from http import HTTPStatus

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.net.httpcodec import HttpCodec
from rookery.net.httptext import HttpRequest, Refusal, Response

GET = b"GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"


def codec(max_head_bytes: int = 8192, max_body_bytes: int = 1000) -> HttpCodec:
    return HttpCodec(max_head_bytes, max_body_bytes, "peer")


def refusal_of(reader: HttpCodec) -> HTTPStatus:
    with pytest.raises(Refusal) as caught:
        reader.next_request()
    return caught.value.response.status


def answered(reader: HttpCodec, response: Response, *, is_last: bool = False) -> bytes:
    """Answer a request with h11's client as a witness; return the body that it reads."""
    witness = h11.Connection(h11.CLIENT)
    witness.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
    witness.send(h11.EndOfMessage())
    witness.receive_data(reader.send(response, is_last=is_last))
    head = witness.next_event()
    assert isinstance(head, h11.Response)
    assert head.status_code == response.status
    body = b""
    while isinstance(event := witness.next_event(), h11.Data):
        body += event.data
    assert isinstance(event, h11.EndOfMessage)
    return body


def test_consecutive_requests_are_parsed_from_any_chunks() -> None:
    for size in range(1, len(GET + POST)):
        reader, requests = codec(), []
        data = GET + POST + GET
        for start in range(0, len(data), size):
            reader.receive(data[start : start + size])
            while (request := reader.next_request()) is not None:
                requests.append(request)
                assert answered(reader, Response(b"ok")) == b"ok"
        assert [(r.method, r.path, r.query_text, r.body) for r in requests] == [
            ("GET", "/a", "b=c", b""),
            ("POST", "/p", "", b"body"),
            ("GET", "/a", "b=c", b""),
        ]
        assert not reader.has_part


def test_incomplete_request_is_detected() -> None:
    reader, steps = codec(), []
    for data in (b"", POST[:5], POST[5:-1], POST[-1:]):
        reader.receive(data)
        steps.append((reader.next_request(), reader.has_part))
    headers = {"host": "x", "content-length": "4"}
    whole = HttpRequest("POST", "/p", "", headers, b"body", "peer")
    assert steps == [(None, False), (None, True), (None, True), (whole, False)]


def test_head_is_bounded() -> None:
    length = len(GET) - 4
    reader = codec(max_head_bytes=length)
    reader.receive(GET)
    assert reader.next_request() is not None
    reader = codec(max_head_bytes=length)
    reader.receive(GET[:length])
    assert reader.next_request() is None
    for data in (GET, GET[:length]):
        reader = codec(max_head_bytes=length - 1)
        reader.receive(data)
        assert refusal_of(reader) is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE


def test_body_is_bounded() -> None:
    reader = codec(max_body_bytes=4)
    reader.receive(POST)
    assert reader.next_request() is not None
    reader = codec(max_body_bytes=3)
    reader.receive(POST)
    assert refusal_of(reader) is HTTPStatus.REQUEST_ENTITY_TOO_LARGE


def test_a_refused_head_request_is_answered_without_a_body() -> None:
    reader = codec(max_body_bytes=3)
    reader.receive(POST.replace(b"POST", b"HEAD"))
    assert refusal_of(reader) is HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    assert reader.send(Response(b"too large", HTTPStatus(413)), is_last=True).endswith(b"\r\n\r\n")
    assert reader.is_over


def test_refusal_can_be_answered_in_any_state() -> None:
    for data in (
        b"",
        b"\r\n",
        b"GET ",
        GET[:-2],
        POST[:-1],
        b"x: y\r\n\r\n",
        GET.replace(b"x", b"\0"),
    ):
        reader = codec()
        reader.receive(data)
        with suppress(Refusal):
            reader.next_request()
        assert answered(reader, Response(b"no", HTTPStatus.BAD_REQUEST), is_last=True) == b"no"
        assert reader.is_over


@given(st.binary(max_size=300))
def test_any_head_is_parsed_or_refused(data: bytes) -> None:
    for head in (data, b"GET /hello HTTP/1.1\r\nHost: x\r\n" + data, b"GET /" + data):
        reader = codec()
        reader.receive(head + b"\r\n\r\n")
        with suppress(Refusal):
            request = reader.next_request()
            assert request is None or request.path.startswith("/")


@given(st.text(), st.text())
def test_response_has_one_line_per_header(name: str, value: str) -> None:
    plain = codec().send(Response(), is_last=True)
    reader = codec()
    try:
        written = reader.send(Response(headers={name: value}), is_last=True)
    except ValueError:  # also of text that cannot be encoded
        # and then another response can be sent
        assert answered(reader, Response(b"failed"), is_last=True) == b"failed"
        return
    assert written.count(b"\n") <= plain.count(b"\n") + 1
    assert written.count(b"\r") <= plain.count(b"\r") + 1
