"""The codec: both interpreters against each other, bounds, views, unknown tags."""

from __future__ import annotations

import pickle
import sys
import tracemalloc
from random import Random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.errors import ApiError, ErrorCode, ProtocolError
from rookery.testing.messages import random_message
from rookery.wire import _codec, _twin
from rookery.wire.catalog import apis
from rookery.wire.codec import decode, encode, encode_bytes, table_of
from rookery.wire.message import Message, Parts
from rookery.wire.messages.fetch import FetchRequest
from rookery.wire.messages.heartbeat import HeartbeatRequest
from rookery.wire.messages.metadata import MetadataRequest
from rookery.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

ENGINES = [pytest.param(_codec, id="compiled"), pytest.param(_twin, id="twin")]
MESSAGES = [
    (cls, version)
    for api in apis().values()
    for version in api.versions
    for cls in (api.request, api.response)
]


def produce(records: Any) -> ProduceRequest:
    return ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name="t", partition_data=[PartitionProduceData(index=0, records=records)]
            )
        ],
    )


def outcome(engine: ModuleType, cls: type[Message], version: int, data: bytes) -> object:
    """What reading gives, in a form that can be compared: as bytes, since nan != nan."""
    table = table_of(cls, version)
    try:
        message, end = engine.read(table, data, 0)
    except ProtocolError as error:
        return str(error)
    return end, repr(message), b"".join(engine.write(table, message))


def mutate(data: bytes, random: Random) -> bytes:
    """Break a message in one of the ways that peers break them."""
    broken = bytearray(data)
    if not broken:
        return b"\xff"
    at = random.randrange(len(broken))
    match random.randrange(4):
        case 0:
            del broken[at:]
        case 1:
            broken[at] = random.choice((0, 1, 127, 128, 255))
        case 2:
            huge = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x80\x01")
            broken[at : at + 4] = random.choice(huge)
        case _:
            broken[at] = random.randrange(256)
    return bytes(broken)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_message_survives_a_round_trip(engine: ModuleType) -> None:
    for cls, version in MESSAGES:
        table = table_of(cls, version)
        for seed in range(3):
            message = random_message(cls, version, seed)
            wire = b"".join(engine.write(table, message))
            assert engine.read(table, wire, 0) == (message, len(wire))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**63))
def test_compiled_codec_and_twin_agree(seed: int) -> None:
    random = Random(seed)
    for cls, version in random.sample(MESSAGES, 60):
        message = random_message(cls, version, random)
        table = table_of(cls, version)
        parts = _codec.write(table, message)
        assert list(map(bytes, parts)) == list(map(bytes, _twin.write(table, message)))
        wire = b"".join(parts)
        for _ in range(8):
            broken = mutate(wire, random)
            assert outcome(_codec, cls, version, broken) == outcome(_twin, cls, version, broken)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_truncation_is_refused(engine: ModuleType) -> None:
    for cls, version in MESSAGES[::7]:
        table = table_of(cls, version)
        wire = b"".join(engine.write(table, random_message(cls, version, 5)))
        for size in range(len(wire)):
            with pytest.raises(ProtocolError):
                engine.read(table, wire[:size], 0)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("cls", "version", "wire"),
    [
        pytest.param(MetadataRequest, 1, b"\x7f\xff\xff\xff", id="array"),
        pytest.param(MetadataRequest, 9, b"\xff\xff\xff\xff\x0f", id="compact array"),
        pytest.param(HeartbeatRequest, 4, b"\x02g\0\0\0\1\x02m\0\x80\xad\xe2\x04", id="tags"),
        pytest.param(
            HeartbeatRequest,
            4,
            b"\x02g\0\0\0\1\x02m\0\x80\xad\xe2\x04" + bytes(range(128)) * 100_000,
            id="ten million tags with their bytes",
        ),
        pytest.param(HeartbeatRequest, 0, b"\x7f\xffg", id="string"),
        pytest.param(HeartbeatRequest, 4, b"\xff\xff\xff\xff\x0fg", id="compact string"),
        pytest.param(ProduceRequest, 3, b"\xff\xff\0\0\0\0\0\0\x7f\xff\xff\xff", id="topics"),
    ],
)
def test_huge_count_allocates_nothing(
    engine: ModuleType, cls: type[Message], version: int, wire: bytes
) -> None:
    table = table_of(cls, version)
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    tracemalloc.start()
    sys.setprofile(count)
    try:
        with pytest.raises(ProtocolError) as caught:
            engine.read(table, wire, 0)
    finally:
        sys.setprofile(None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
    assert calls < 10_000
    assert caught.value.args[0]


@pytest.mark.parametrize("engine", ENGINES)
def test_number_of_elements_is_bounded(engine: ModuleType) -> None:
    table = table_of(MetadataRequest, 1)
    wire = b"\0\0\0\x0a" + b"\0\1t" * 10
    message, _ = engine.read(table, wire, 0, 10)
    assert len(message.topics) == 10
    with pytest.raises(ProtocolError, match=r"MetadataRequest\.topics: more array elements"):
        engine.read(table, wire, 0, 9)


@pytest.mark.parametrize("engine", ENGINES)
def test_records_are_views_of_the_frame(engine: ModuleType) -> None:
    frame = bytearray(encode_bytes(produce(b"r" * 5000), 9))
    message, _ = engine.read(table_of(ProduceRequest, 9), frame, 0)
    records = message.topic_data[0].partition_data[0].records
    at = frame.index(b"rrr")
    frame[at] = ord("X")
    assert records[:3].tobytes() == b"Xrr"


@pytest.mark.parametrize("engine", ENGINES)
def test_long_records_are_not_copied(engine: ModuleType) -> None:
    first, second = bytearray(5000), memoryview(bytes(7000))
    parts = engine.write(table_of(ProduceRequest, 9), produce(Parts((first, b"short", second))))
    assert any(part is first for part in parts)
    assert any(part is second for part in parts)
    back = decode(ProduceRequest, 9, b"".join(parts))
    records = back.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.tobytes() == bytes(first) + b"short" + bytes(second)


@pytest.mark.parametrize("engine", ENGINES)
def test_views_of_wider_items_count_bytes(engine: ModuleType) -> None:
    words = memoryview(bytes(8000)).cast("I")
    parts = engine.write(table_of(ProduceRequest, 9), produce(words))
    back = decode(ProduceRequest, 9, b"".join(parts))
    assert back.topic_data[0].partition_data[0].records == bytes(8000)
    with pytest.raises(ValueError, match="gaps"):
        engine.write(table_of(ProduceRequest, 9), produce(memoryview(bytes(9000))[::2]))


@pytest.mark.parametrize("engine", ENGINES)
def test_unknown_tags_survive_in_order(engine: ModuleType) -> None:
    request = random_message(FetchRequest, 15, 3).replace(cluster_id="c", replica_state=None)
    request.unknown_tags = {7: b"seven", 500: b""}
    table = table_of(FetchRequest, 15)
    wire = b"".join(engine.write(table, request))
    back, _ = engine.read(table, wire, 0)
    assert back == request
    assert back.unknown_tags == {7: b"seven", 500: b""}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("tags", "text"),
    [
        (b"\x02\x05\x01a\x05\x01b", "tag 5 after tag 5"),
        (b"\x02\x06\x01a\x05\x01b", "tag 5 after tag 6"),
        (b"\x01\x05\x09a", "tag 5 has 9 bytes, 1 left"),
        (b"\xff\xff\xff\xff\xff\x01", "over five bytes"),
    ],
)
def test_invalid_tags_are_refused(engine: ModuleType, tags: bytes, text: str) -> None:
    wire = b"\x02g\0\0\0\1\x02m\0" + tags
    with pytest.raises(ProtocolError, match=text) as caught:
        engine.read(table_of(HeartbeatRequest, 4), wire, 0)
    assert str(caught.value).startswith("HeartbeatRequest: ")


@pytest.mark.parametrize("engine", ENGINES)
def test_tag_with_trailing_bytes_is_refused(engine: ModuleType) -> None:
    good = encode_bytes(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[], cluster_id="c"), 12)
    tag = b"\x01\x00\x02\x02c"
    assert good.endswith(tag)
    wire = good.removesuffix(tag) + b"\x01\x00\x03\x02cX"
    with pytest.raises(ProtocolError, match=r"FetchRequest\.cluster_id: its tag has bytes left"):
        engine.read(table_of(FetchRequest, 12), wire, 0)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("wire", "text"),
    [
        (b"\xff\xff\0\0\0\1\0\1m", r"HeartbeatRequest\.group_id: null, but this string cannot"),
        (b"\xff\xfe\0\0\0\1\0\1m", r"HeartbeatRequest\.group_id: a string of length -2"),
        (b"\0\1\xff\0\0\0\1\0\1m", r"HeartbeatRequest\.group_id: a string that is not UTF-8"),
        (b"\0\1g\0\0\0\1\0\5m", r"HeartbeatRequest\.member_id: a string of 5 bytes, 1 left"),
        (b"\0\1g\0\0", r"HeartbeatRequest\.generation_id: 4 bytes wanted, 2 left"),
    ],
)
def test_an_error_names_the_field(engine: ModuleType, wire: bytes, text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        engine.read(table_of(HeartbeatRequest, 0), wire, 0)


def test_trailing_bytes_are_refused() -> None:
    wire = encode_bytes(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 0)
    with pytest.raises(ProtocolError, match="HeartbeatRequest v0: 2 bytes left over"):
        decode(HeartbeatRequest, 0, wire + b"xx")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"generation_id": 2**31}, "generation_id: 2147483648 is not between"),
        ({"generation_id": 2**70}, "generation_id: 1180591620717411303424 is not between"),
        ({"generation_id": "1"}, "generation_id: str, where a number belongs"),
        ({"group_id": None}, "group_id: None, but it cannot be null"),
        ({"group_id": b"g"}, "group_id: bytes, where a string belongs"),
        ({"group_id": "\ud800"}, "group_id: a string with a lone surrogate"),
        ({"group_id": "g" * 40_000}, "group_id: 40000 bytes, 32767 at most"),
    ],
)
def test_value_out_of_range_is_named(
    engine: ModuleType, changes: dict[str, object], text: str
) -> None:
    good = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    with pytest.raises(ValueError, match=rf"HeartbeatRequest\.{text}"):
        engine.write(table_of(HeartbeatRequest, 0), good.replace(**changes))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_wrong_structure_is_named(engine: ModuleType) -> None:
    request = produce(b"")
    request.topic_data = [PartitionProduceData(index=0, records=None)]  # type: ignore[list-item] # the point
    with pytest.raises(TypeError, match="a PartitionProduceData where a TopicProduceData belongs"):
        engine.write(table_of(ProduceRequest, 9), request)


def test_unknown_error_code_is_preserved() -> None:
    api = apis()[12]
    wire = encode_bytes(api.response(error_code=ErrorCode(31_000)), 4)
    back = decode(api.response, 4, wire)
    assert back.error_code == 31_000
    assert back.error_code.name == "UNKNOWN_31000"


def test_undefined_version_is_refused() -> None:
    with pytest.raises(ApiError) as caught:
        encode(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 99)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_fields_missing_in_a_version_are_omitted() -> None:
    request = HeartbeatRequest(
        group_id="g", generation_id=1, member_id="m", group_instance_id="static"
    )
    assert decode(HeartbeatRequest, 2, encode_bytes(request, 2)).group_instance_id is None
    assert decode(HeartbeatRequest, 3, encode_bytes(request, 3)).group_instance_id == "static"


def test_messages_can_be_pickled() -> None:
    request = decode(ProduceRequest, 9, encode_bytes(produce(b"records"), 9))
    assert pickle.loads(pickle.dumps(request)) == request
