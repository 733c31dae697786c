"""Headers: their versions for each API, and whole frames."""

from __future__ import annotations

from typing import Any

import pytest

from rookery.errors import ProtocolError
from rookery.testing.messages import random_message
from rookery.wire.catalog import apis
from rookery.wire.codec import (
    correlation_id,
    is_one_way,
    peek,
    read_request,
    read_response,
    request_frame,
    request_header_version,
    response_frame,
    response_header_version,
)
from rookery.wire.message import Api
from rookery.wire.messages.produce import PRODUCE, ProduceRequest

PAIRS = [
    pytest.param(api, version, id=f"{api.name}-{version}")
    for api in apis().values()
    for version in api.versions
]


def body_of(parts: list[Any]) -> bytes:
    """Check the length in front, and return what follows."""
    frame = b"".join(parts)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4:]


@pytest.mark.parametrize(("api", "version"), PAIRS)
def test_requests_and_responses_survive_a_round_trip(api: Api[Any, Any], version: int) -> None:
    request = random_message(api.request, version, 8)
    response = random_message(api.response, version, 8)

    asked = body_of(request_frame(api, version, -7, "client", request))
    answered = body_of(response_frame(api, version, 2**31 - 1, response))

    header, back = read_request(api, asked)
    assert (header.api_key, header.api_version) == (api.key, version)
    assert (header.correlation_id, header.client_id, back) == (-7, "client", request)
    assert peek(asked) == (api.key, version, -7)
    assert correlation_id(answered) == 2**31 - 1
    assert read_response(api, version, answered) == response


def test_the_answer_to_api_versions_never_has_a_flexible_header() -> None:
    api = apis()[18]
    assert [request_header_version(api, v) for v in api.versions] == [1, 1, 1, 2, 2]
    assert {response_header_version(api, v) for v in api.versions} == {0}


def test_only_produce_without_acks_is_one_way() -> None:
    assert [api for api in apis().values() if api.has_one_way_requests] == [PRODUCE]
    for acks in (0, 1, -1):
        request = ProduceRequest(acks=acks, timeout_ms=1, topic_data=[])
        frame = body_of(request_frame(PRODUCE, 9, 1, None, request))
        assert is_one_way(PRODUCE, frame) is PRODUCE.is_one_way(request) is (acks == 0)


def test_request_that_is_always_answered_is_not_decoded() -> None:
    assert not is_one_way(apis()[12], b"no request at all")


def test_a_client_id_may_be_null() -> None:
    api = apis()[12]
    frame = body_of(request_frame(api, 4, 1, None, random_message(api.request, 4, 1)))
    assert read_request(api, frame)[0].client_id is None


@pytest.mark.parametrize("size", range(8))
def test_a_frame_too_short_for_a_header_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match="its header alone has 8"):
        peek(bytes(size))


def test_a_response_too_short_for_a_header_is_refused() -> None:
    with pytest.raises(ProtocolError, match="its header alone has 4"):
        correlation_id(b"abc")


def test_response_header_may_have_tagged_fields() -> None:
    response = random_message(PRODUCE.response, 9, 8)
    plain = body_of(response_frame(PRODUCE, 9, 5, response))
    # One unknown tag of one byte, where the header said that there is none.
    assert plain[4] == 0
    assert read_response(PRODUCE, 9, plain[:4] + b"\1\x07\1x" + plain[5:]) == response


@pytest.mark.parametrize("size", [0, 3, 4])
def test_response_shorter_than_its_header_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError):
        read_response(PRODUCE, 9, bytes(size))
