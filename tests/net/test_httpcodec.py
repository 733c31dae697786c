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


def refusal_of(one: HttpCodec) -> HTTPStatus:
    with pytest.raises(Refusal) as caught:
        one.next_request()
    return caught.value.response.status


def answered(one: HttpCodec, response: Response, *, is_last: bool = False) -> bytes:
    """Answer a request with h11's client as a witness; return the body that it reads."""
    witness = h11.Connection(h11.CLIENT)
    witness.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
    witness.send(h11.EndOfMessage())
    witness.receive_data(one.send(response, is_last=is_last))
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
        one, requests = codec(), []
        data = GET + POST + GET
        for start in range(0, len(data), size):
            one.receive(data[start : start + size])
            while (request := one.next_request()) is not None:
                requests.append(request)
                assert answered(one, Response(b"ok")) == b"ok"
        assert [(r.method, r.path, r.query_text, r.body) for r in requests] == [
            ("GET", "/a", "b=c", b""),
            ("POST", "/p", "", b"body"),
            ("GET", "/a", "b=c", b""),
        ]
        assert not one.has_part


def test_incomplete_request_is_detected() -> None:
    one, steps = codec(), []
    for data in (b"", POST[:5], POST[5:-1], POST[-1:]):
        one.receive(data)
        steps.append((one.next_request(), one.has_part))
    headers = {"host": "x", "content-length": "4"}
    whole = HttpRequest("POST", "/p", "", headers, b"body", "peer")
    assert steps == [(None, False), (None, True), (None, True), (whole, False)]


def test_head_is_bounded() -> None:
    length = len(GET) - 4
    one = codec(max_head_bytes=length)
    one.receive(GET)
    assert one.next_request() is not None
    one = codec(max_head_bytes=length)
    one.receive(GET[:length])
    assert one.next_request() is None
    for data in (GET, GET[:length]):
        one = codec(max_head_bytes=length - 1)
        one.receive(data)
        assert refusal_of(one) is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE


def test_body_is_bounded() -> None:
    one = codec(max_body_bytes=4)
    one.receive(POST)
    assert one.next_request() is not None
    one = codec(max_body_bytes=3)
    one.receive(POST)
    assert refusal_of(one) is HTTPStatus.REQUEST_ENTITY_TOO_LARGE


def test_a_refused_head_request_is_answered_without_a_body() -> None:
    one = codec(max_body_bytes=3)
    one.receive(POST.replace(b"POST", b"HEAD"))
    assert refusal_of(one) is HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    assert one.send(Response(b"too large", HTTPStatus(413)), is_last=True).endswith(b"\r\n\r\n")
    assert one.is_over


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
        one = codec()
        one.receive(data)
        with suppress(Refusal):
            one.next_request()
        assert answered(one, Response(b"no", HTTPStatus.BAD_REQUEST), is_last=True) == b"no"
        assert one.is_over


@given(st.binary(max_size=300))
def test_any_head_is_parsed_or_refused(data: bytes) -> None:
    for head in (data, b"GET /hello HTTP/1.1\r\nHost: x\r\n" + data, b"GET /" + data):
        one = codec()
        one.receive(head + b"\r\n\r\n")
        with suppress(Refusal):
            request = one.next_request()
            assert request is None or request.path.startswith("/")


@given(st.text(), st.text())
def test_response_has_one_line_per_header(name: str, value: str) -> None:
    plain = codec().send(Response(), is_last=True)
    one = codec()
    try:
        written = one.send(Response(headers={name: value}), is_last=True)
    except ValueError:  # also of text that cannot be encoded
        # and then another response can be sent
        assert answered(one, Response(b"failed"), is_last=True) == b"failed"
        return
    assert written.count(b"\n") <= plain.count(b"\n") + 1
    assert written.count(b"\r") <= plain.count(b"\r") + 1
