"""Runs of frames, by the compiled window and its twin: the same bytes, and the same requests."""

from __future__ import annotations

import struct
from math import inf
from random import Random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.proxy.direct import windowtwin
from rookery.proxy.direct.relayrules import rule_rows
from rookery.proxy.passage import mirror_passages
from rookery.testing.messages import random_message
from rookery.wire.catalog import kafka_apis
from rookery.wire.codec import is_one_way, request_frame, response_frame
from rookery.wire.frame import FrameSplitter
from rookery.wire.messages.fetch import FETCH, FetchResponse
from rookery.wire.messages.heartbeat import HEARTBEAT
from rookery.wire.messages.join_group import JOIN_GROUP
from rookery.wire.messages.metadata import METADATA
from rookery.wire.messages.produce import PRODUCE, ProduceRequest
from rookery.wire.messages.share_acknowledge import SHARE_ACKNOWLEDGE
from rookery.wire.messages.share_fetch import SHARE_FETCH
from rookery.wire.table import element_class

try:
    from rookery.proxy.direct import _window
except ImportError:  # pragma: no cover (it was not built)
    MODULES: list[ModuleType] = [windowtwin]
else:
    MODULES = [_window, windowtwin]

PASSAGES = mirror_passages()
ROWS = rule_rows(PASSAGES, 30_000, 300_000)
RELAYED = sorted((row[0], row[1]) for row in ROWS)
HINTED = [row[:2] for row in ROWS if row[4] is not None]
LIMIT = 1 << 24
LARGEST = 8 * 1024 * 1024
CAPACITY = 5


@pytest.fixture(params=MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def module(request: pytest.FixtureRequest) -> ModuleType:
    implementation: ModuleType = request.param
    return implementation


def window_of(module: ModuleType, capacity: int = CAPACITY) -> Any:
    return module.RelayWindow(module.RelayRules(ROWS), capacity)


def plain_request(number: int, key: int = HEARTBEAT.key, version: int = 4) -> bytes:
    frame = struct.pack(">hhih", key, version, number, -1) + b"\0body"
    return struct.pack(">i", len(frame)) + frame


def plain_answer(number: int, body: bytes = b"\0done") -> bytes:
    return struct.pack(">ii", 4 + len(body), number) + body


def test_requests_get_numbers_of_the_window(module: ModuleType) -> None:
    window = window_of(module)
    window.number = 2**31 - 1
    data = bytearray(plain_request(-7) + plain_request(9))

    assert window.take_requests(data, 0, len(data), LIMIT, 1.0) == len(data)

    assert data == plain_request(2**31 - 1) + plain_request(0)
    assert (window.taken, window.count, window.number) == (2, 2, 1)
    assert window.earliest == 31.0
    assert window.drain() == [
        (HEARTBEAT.key, 4, 2**31 - 1, -7, 31.0, 30_000),
        (HEARTBEAT.key, 4, 0, 9, 31.0, 30_000),
    ]
    assert window.count == 0


def test_answers_get_the_numbers_of_the_clients(module: ModuleType) -> None:
    window = window_of(module)
    asked = bytearray(plain_request(-7) + plain_request(9))
    window.take_requests(asked, 0, len(asked), LIMIT, 1.0)
    data = bytearray(plain_answer(0) + plain_answer(1))

    assert window.take_answers(data, 0, len(data), LIMIT) == len(data)

    assert data == plain_answer(-7) + plain_answer(9)
    assert (window.count, window.is_stopped) == (0, False)


@pytest.mark.parametrize(
    "second",
    [
        plain_request(1, METADATA.key, 12),
        plain_request(1, 9000, 0),
        plain_request(1, -1, 0),
        plain_request(1, HEARTBEAT.key, 31),
        plain_request(1, HEARTBEAT.key, -1),
        struct.pack(">i", 7) + bytes(7),
        struct.pack(">i", -1) + bytes(7),
        struct.pack(">i", LIMIT + 1),
        struct.pack(">i", LARGEST + 1),
    ],
    ids=["decoded", "own", "negative", "new", "old", "short", "below 0", "limit", "large"],
)
def test_unusual_request_ends_the_run(module: ModuleType, second: bytes) -> None:
    window, data = window_of(module), bytearray(plain_request(5) + second)

    end = window.take_requests(data, 0, len(data), LIMIT, 0.0)

    assert (end, window.taken, window.is_stopped) == (len(plain_request(5)), 1, True)
    assert data[end:] == second


@pytest.mark.parametrize("cut", range(1, 19))
def test_incomplete_request_waits(module: ModuleType, cut: int) -> None:
    window, data = window_of(module), bytearray(plain_request(5)[:-cut])

    assert window.take_requests(data, 0, len(data), LIMIT, 0.0) == 0
    assert (window.taken, window.is_stopped, window.earliest) == (0, False, inf)
    assert window.awaited == (len(plain_request(5)) if cut <= len(plain_request(5)) - 4 else 0)


@pytest.mark.parametrize("size", [8, 16 * 1024 + 1, LARGEST])
def test_incomplete_frames_up_to_a_size_are_awaited(module: ModuleType, size: int) -> None:
    window = window_of(module)
    ask(window, HEARTBEAT.key, 4)
    data = bytearray(struct.pack(">i", size) + bytes(3))

    assert window.take_answers(data, 0, len(data), LIMIT) == 0
    assert (window.awaited, window.is_stopped) == (4 + size, False)
    assert window.take_requests(data, 0, len(data), LIMIT, 0.0) == 0
    assert (window.awaited, window.is_stopped) == (4 + size, False)


def test_full_window_ends_the_run(module: ModuleType) -> None:
    window, data = window_of(module), bytearray(plain_request(5) * (CAPACITY + 1))

    end = window.take_requests(data, 0, len(data), LIMIT, 0.0)

    assert (end, window.count) == (CAPACITY * len(plain_request(5)), CAPACITY)
    assert window.is_stopped


def test_window_has_room(module: ModuleType) -> None:
    with pytest.raises(ValueError, match="one request"):
        window_of(module, 0)


def test_order_stays_while_the_window_grows_and_shrinks(module: ModuleType) -> None:
    window, random, waiting = window_of(module, 64), Random(3), list[int]()
    sent = 0
    for _ in range(300):
        count = random.randrange(9 if len(waiting) < 30 else 3)
        data = bytearray(b"".join(plain_request(-n) for n in range(sent, sent + count)))
        window.take_requests(data, 0, len(data), LIMIT, 0.0)
        waiting += range(sent, sent + window.taken)
        sent += window.taken
        count = random.choice([len(waiting), random.randrange(len(waiting) + 1)])
        answered, waiting = waiting[:count], waiting[count:]
        data = bytearray(b"".join(map(plain_answer, answered)))

        assert window.take_answers(data, 0, len(data), LIMIT) == len(data)
        assert data == b"".join(plain_answer(-n) for n in answered)
        assert window.count == len(waiting)


@pytest.mark.parametrize(
    "second",
    [
        plain_answer(2),
        plain_answer(-1),
        struct.pack(">i", 3) + bytes(7),
        struct.pack(">i", -1) + bytes(7),
        struct.pack(">i", LIMIT + 1),
        struct.pack(">i", LARGEST + 1),
    ],
    ids=["another", "negative", "short", "below 0", "limit", "large"],
)
def test_unusual_answer_ends_the_run(module: ModuleType, second: bytes) -> None:
    window, asked = window_of(module), bytearray(plain_request(5) * 3)
    window.take_requests(asked, 0, len(asked), LIMIT, 0.0)
    data = bytearray(plain_answer(0) + second)

    end = window.take_answers(data, 0, len(data), LIMIT)

    assert (end, window.taken, window.is_stopped) == (len(plain_answer(0)), 1, True)
    assert bytes(data[end:]) == second
    assert window.count == 2


def test_answer_that_was_not_asked_for_ends_the_run(module: ModuleType) -> None:
    window, data = window_of(module), bytearray(plain_answer(0))

    assert window.take_answers(data, 0, len(data), LIMIT) == 0
    assert window.is_stopped


@pytest.mark.parametrize(("at", "end"), [(-1, 3), (0, 99), (3, 2)])
def test_run_is_in_the_data(module: ModuleType, at: int, end: int) -> None:
    window, data = window_of(module), bytearray(10)

    with pytest.raises(ValueError, match="not in the data"):
        window.take_requests(data, at, end, LIMIT, 0.0)
    with pytest.raises(ValueError, match="not in the data"):
        window.take_answers(data, at, end, LIMIT)


def test_slow_requests_have_their_own_deadline(module: ModuleType) -> None:
    window, data = window_of(module), bytearray(plain_request(5, JOIN_GROUP.key, 9))

    window.take_requests(data, 0, len(data), LIMIT, 1.0)

    assert window.earliest == 301.0


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("version", PRODUCE.versions)
def test_produce_without_a_response_is_not_kept(
    module: ModuleType, version: int, acks: int
) -> None:
    request = ProduceRequest(acks=acks, timeout_ms=1, topic_data=[])
    data = bytearray(b"".join(request_frame(PRODUCE, version, 3, "me", request)))
    window = window_of(module)

    window.take_requests(data, 0, len(data), LIMIT, 0.0)

    assert (window.taken, window.count) == (1, int(not is_one_way(PRODUCE, bytes(data[4:]))))


def ask(window: Any, key: int, version: int) -> None:
    body = ProduceRequest(acks=1, timeout_ms=1, topic_data=[])
    data = bytearray(
        b"".join(request_frame(PRODUCE, version, 3, "me", body))
        if key == PRODUCE.key
        else plain_request(3, key, version)
    )
    window.take_requests(data, 0, len(data), LIMIT, 0.0)
    assert window.count == 1


@pytest.mark.parametrize(("key", "version"), HINTED)
def test_response_passes_unless_it_has_tagged_fields_at_its_end(
    module: ModuleType, key: int, version: int
) -> None:
    api = kafka_apis()[key]
    endpoint_type = element_class(api.response, api.response.__fields__["node_endpoints"])
    assert endpoint_type is not None
    for seed in range(30):
        response: Any = random_message(api.response, version, seed)
        response.unknown_tags = None
        for endpoints in ([], [endpoint_type(node_id=1, host="a", port=1)]):
            response.node_endpoints = endpoints
            window = window_of(module)
            ask(window, key, version)
            data = bytearray(b"".join(response_frame(api, version, 0, response)))
            end = window.take_answers(data, 0, len(data), LIMIT)

            assert end == (0 if endpoints else len(data))
            assert window.is_stopped == bool(endpoints)


def test_responses_with_addresses_elsewhere_are_decoded() -> None:
    """Those of ShareFetch are not a tagged field at the end."""
    assert {key for key, _ in HINTED} == {PRODUCE.key, FETCH.key}
    assert not {key for key, _ in RELAYED} & {METADATA.key, SHARE_FETCH.key, SHARE_ACKNOWLEDGE.key}


def test_no_relayed_response_has_addresses_that_are_passed_over() -> None:
    for key, version in set(RELAYED) - set(HINTED):
        passage = PASSAGES.find((key, version))
        assert passage is not None
        assert not passage.has_addresses


def test_response_with_an_unknown_tag_at_its_end_is_not_relayed(module: ModuleType) -> None:
    window = window_of(module)
    ask(window, FETCH.key, 17)
    response = FetchResponse(session_id=1, responses=[])
    response.unknown_tags = {77: b"new"}
    data = bytearray(b"".join(response_frame(FETCH, 17, 0, response)))

    assert window.take_answers(data, 0, len(data), LIMIT) == 0
    assert window.is_stopped


def requests_of(random: Random) -> bytes:
    frames = []
    for _ in range(random.randrange(1, 9)):
        key, version = random.choice([*RELAYED, (METADATA.key, 12), (900, 0)])
        if key == PRODUCE.key and random.random() < 0.9:
            body = random_message(PRODUCE.request, version, random)
            frames.append(b"".join(request_frame(PRODUCE, version, -3, "me", body)))
        else:
            frames.append(plain_request(random.randrange(-(2**31), 2**31), key, version))
    return b"".join(frames)


def answers_of(random: Random, rows: list[Any], numbers: list[int]) -> bytes:
    frames = []
    for row, number in zip(rows, numbers, strict=True):
        if row[0] in (PRODUCE.key, FETCH.key):
            api = kafka_apis()[row[0]]
            body = random_message(api.response, row[1], random)
            frames.append(b"".join(response_frame(api, row[1], number, body)))
        else:
            frames.append(plain_answer(number, random.randbytes(random.randrange(0, 40))))
    return b"".join(frames)


def damaged(data: bytes, random: Random) -> bytearray:
    result = bytearray(data)
    for _ in range(random.choice([0, 0, 1, 3])):
        if result:
            result[random.randrange(len(result))] = random.randrange(256)
    return result


def feed(window: Any, take: str, data: bytearray, cuts: list[int], *rest: float) -> list[Any]:
    """Let data arrive in pieces; return what the window has done with each."""
    steps, at = [], 0
    for end in cuts:
        at = getattr(window, take)(data, at, end, LIMIT, *rest)
        done = (at, window.taken, window.awaited, window.is_stopped)
        steps.append((*done, window.earliest, window.number))
        if window.is_stopped:
            break
    return steps


@given(seed=st.integers(0, 2**32))
def test_compiled_window_and_twin_agree(seed: int) -> None:
    random = Random(seed)
    windows = [window_of(module) for module in MODULES]
    data = damaged(requests_of(random), random)
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(random.randrange(4)))
    copies = [bytearray(data) for _ in windows]
    done = [
        feed(window, "take_requests", copy, [*cuts, len(data)], 5.0)
        for window, copy in zip(windows, copies, strict=True)
    ]
    assert done[0] == done[-1]
    assert copies[0] == copies[-1]
    assert windows[0].count == windows[-1].count

    rows = window_of(windowtwin)
    again = bytearray(data)
    feed(rows, "take_requests", again, [*cuts, len(data)], 5.0)
    asked = rows.drain()
    answers = damaged(answers_of(random, asked, [row[2] for row in asked]), random)
    cuts = sorted(random.randrange(len(answers) + 1) for _ in range(random.randrange(4)))
    copies = [bytearray(answers) for _ in windows]
    done = [
        feed(window, "take_answers", copy, [*cuts, len(answers)])
        for window, copy in zip(windows, copies, strict=True)
    ]
    assert done[0] == done[-1]
    assert copies[0] == copies[-1]
    unanswered = asked[len(asked) - windows[0].count :]
    assert [window.drain() for window in windows] == [unanswered] * len(windows)


def test_splitter_continues_in_a_chunk_that_was_filled_elsewhere() -> None:
    splitter = FrameSplitter(LIMIT)
    splitter.buffer()
    chunk = splitter.chunks.take()
    data = plain_request(1) + plain_request(2)
    chunk[: len(data)] = data

    splitter.adopt(chunk, len(plain_request(1)), len(data))

    assert bytes(splitter.take() or b"") == plain_request(2)[4:]
    assert splitter.take() is None
    assert splitter.pending == 0
