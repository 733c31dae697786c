"""The acks of a Produce request, found without decoding it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import ProtocolError
from rookery.wire.acks import wants_no_answer
from rookery.wire.codec import is_one_way, request_frame
from rookery.wire.messages.heartbeat import HEARTBEAT
from rookery.wire.messages.produce import PRODUCE, ProduceRequest

NAMES = st.none() | st.text(max_size=300)


def frame_of(version: int, client_id: str | None, request: ProduceRequest) -> bytes:
    return b"".join(request_frame(PRODUCE, version, 1, client_id, request))[4:]


@given(
    version=st.sampled_from(PRODUCE.versions),
    client_id=NAMES,
    transactional_id=NAMES,
    acks=st.sampled_from([0, 1, -1]),
)
def test_acks_are_those_of_the_decoded_request(
    version: int, client_id: str | None, transactional_id: str | None, acks: int
) -> None:
    request = ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=1, topic_data=[]
    )
    frame = frame_of(version, client_id, request)

    assert wants_no_answer(PRODUCE, frame) is is_one_way(PRODUCE, frame) is (acks == 0)


def test_header_with_tagged_fields_is_decoded() -> None:
    request = ProduceRequest(acks=0, timeout_ms=1, topic_data=[])
    frame = frame_of(9, "me", request)
    # One unknown tag of one byte, where the header said that there is none.
    assert frame[12] == 0
    tagged = frame[:12] + b"\1\x07\1x" + frame[13:]

    assert wants_no_answer(PRODUCE, tagged)


@given(version=st.sampled_from(PRODUCE.versions), size=st.integers(8, 14))
def test_request_that_ends_before_its_acks_is_refused(version: int, size: int) -> None:
    frame = frame_of(version, "client", ProduceRequest(acks=1, timeout_ms=1, topic_data=[]))

    with pytest.raises(ProtocolError):
        wants_no_answer(PRODUCE, frame[:size])


def test_other_requests_are_not_looked_at() -> None:
    assert not wants_no_answer(HEARTBEAT, b"no request at all")
