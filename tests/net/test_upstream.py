"""A connection to a broker: order, limits, deadlines and failures."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rookery.errors import ApiError, ConfigError, ErrorCode, ProtocolError, Unavailable
from rookery.net.callqueue import CallOptions
from rookery.net.connection import Connection
from rookery.net.outbox import Answer
from rookery.net.settings import UpstreamSettings
from rookery.net.upstream import Upstream, connect
from rookery.testing.certificates import Certificates
from rookery.testing.ports import free_port
from rookery.testing.wait import wait_until_async
from rookery.testing.wire import MemoryTransport, add_length
from rookery.wire.codec import peek, read_request, request_frame, response_frame
from rookery.wire.frame import Frame, renumber
from rookery.wire.messages.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse
from tests.net.serving import Parking, answer, echo, listening, number_of, request

PATIENCE = 60
MINUTE_MS = 60_000


def beat(member: str = "m") -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=1, member_id=member)


def heartbeats(connection: Connection, frame: Frame) -> Answer:
    """Answer as a broker would; how long to throttle tells whose heartbeat it was."""
    header, body = read_request(HEARTBEAT, frame)
    response = HeartbeatResponse(throttle_time_ms=int(body.member_id), error_code=ErrorCode.NONE)
    return response_frame(HEARTBEAT, header.api_version, header.correlation_id, response)


@asynccontextmanager
async def connected(port: int, **settings: int) -> AsyncIterator[Upstream]:
    upstream = await connect("127.0.0.1", port, UpstreamSettings(**settings))  # type: ignore[arg-type] # all given are numbers
    async with asyncio.timeout(PATIENCE):
        try:
            yield upstream
        finally:
            upstream.close()
            await upstream.wait_closed()


@pytest.mark.parametrize("version", [1, 4])
async def test_calls_are_pipelined_and_get_their_own_answers(version: int) -> None:
    async with listening(heartbeats) as listener, connected(listener.port) as upstream:
        answers = await asyncio.gather(
            *(upstream.call(HEARTBEAT, version, beat(str(n)), MINUTE_MS) for n in range(500))
        )
        assert [response.throttle_time_ms for response in answers] == list(range(500))
        assert upstream.requests == 500
        assert upstream.in_flight == 0


async def test_all_requests_are_sent_before_the_first_answer() -> None:
    parking = Parking()
    async with listening(parking) as listener, connected(listener.port) as upstream:
        calls = [
            asyncio.ensure_future(upstream.forward([request(77, b"%d" % n)], MINUTE_MS))
            for n in range(10)
        ]
        await parking.has(10)
        parking.release(*range(10))
        assert [number_of(await call) for call in calls] == list(range(10))


async def test_requests_beyond_the_bound_wait_in_order() -> None:
    parking = Parking()
    async with (
        listening(parking) as listener,
        connected(listener.port, max_in_flight=2) as upstream,
    ):
        calls = [
            asyncio.ensure_future(upstream.forward([request(0, b"%d" % n)], MINUTE_MS))
            for n in range(6)
        ]
        for number in range(6):
            await parking.has(min(number + 2, 6))
            assert len(parking.parked) <= number + 2
            assert parking.parked[number][0][8:] == b"%d" % number
            parking.release(number)
            assert number_of(await calls[number]) == number


async def test_only_urgent_requests_pass_a_held_queue() -> None:
    members: list[str] = []

    def note(connection: Connection, frame: Frame) -> Answer:
        members.append(read_request(HEARTBEAT, frame)[1].member_id)
        return heartbeats(connection, frame)

    async with listening(note) as listener, connected(listener.port) as upstream:
        with upstream.hold():
            waiting = [
                asyncio.ensure_future(upstream.call(HEARTBEAT, 4, beat(each), MINUTE_MS))
                for each in ("1", "2")
            ]
            await asyncio.sleep(0)
            await upstream.call(HEARTBEAT, 4, beat("9"), MINUTE_MS, is_urgent=True)
            assert members == ["9"]
        await asyncio.gather(*waiting)

        assert members == ["9", "1", "2"]


async def test_forward_keeps_the_body_and_maps_correlation_ids() -> None:
    async with listening(echo) as listener, connected(listener.port) as upstream:
        await upstream.forward([request(1)], MINUTE_MS)
        body = bytes(range(256)) * 1000
        frame = await upstream.forward([request(4711), body[:9], body[9:]], MINUTE_MS)
        assert frame[4:] == body
        assert number_of(frame) == 1
        assert b"".join(renumber(frame, 4711)) == add_length(struct.pack(">i", 4711) + body)


async def test_forward_refuses_a_request_without_header() -> None:
    async with listening(echo) as listener, connected(listener.port) as upstream:
        for parts in ([], [b"1234567"]):
            with pytest.raises(ProtocolError, match="header"):
                await upstream.forward(parts, MINUTE_MS)
        assert number_of(await upstream.forward([request(0)], MINUTE_MS)) == 2


async def test_posts_and_one_way_messages_wait_for_no_answer() -> None:
    seen: list[bytes] = []

    def handler(connection: Connection, frame: Frame) -> Answer:
        key, _, _ = peek(frame)
        seen.append(bytes(frame[8:]))
        return None if key == HEARTBEAT.key or bytes(frame[8:]) == b"acks=0" else answer(frame)

    async with listening(handler) as listener, connected(listener.port) as upstream:
        await upstream.post([request(1, b"acks=0")], MINUTE_MS)
        await upstream.tell(HEARTBEAT, 0, beat(), MINUTE_MS)
        assert number_of(await upstream.forward([request(1, b"acks=1")], MINUTE_MS)) == 2
        assert (seen[0], len(seen), seen[2]) == (b"acks=0", 3, b"acks=1")


async def test_an_unknown_version_is_refused_before_it_is_sent() -> None:
    async with listening(echo) as listener, connected(listener.port) as upstream:
        with pytest.raises(ApiError) as caught:
            await upstream.call(HEARTBEAT, 99, beat(), MINUTE_MS)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
        assert upstream.in_flight == 0
        assert not upstream.is_closed


async def test_late_answers_are_dropped_and_the_order_is_kept() -> None:
    parking = Parking()
    async with listening(parking) as listener, connected(listener.port) as upstream:
        name = f"127.0.0.1:{listener.port}"
        slow = asyncio.ensure_future(upstream.forward([request(0)], 30))
        patient = asyncio.ensure_future(upstream.forward([request(0)], MINUTE_MS))
        with pytest.raises(Unavailable, match=f"{name} did not answer .* within 30 ms"):
            await slow
        cancelled = asyncio.ensure_future(upstream.forward([request(0)], MINUTE_MS))
        await parking.has(3)
        cancelled.cancel()
        parking.release(0, 1, 2)
        assert number_of(await patient) == 1
        await wait_until_async(lambda: upstream.late_answers == 2)
        after = asyncio.ensure_future(upstream.forward([request(0)], MINUTE_MS))
        await parking.has(4)
        parking.release(3)
        assert number_of(await after) == 3


async def test_deadlines_apply_in_any_order_and_while_queued() -> None:
    parking = Parking()
    async with (
        listening(parking) as listener,
        connected(listener.port, max_in_flight=1) as upstream,
    ):
        finished: list[int] = []

        async def call(timeout_ms: int) -> None:
            with pytest.raises(Unavailable, match=f"within {timeout_ms} ms"):
                await upstream.forward([request(0)], timeout_ms)
            finished.append(timeout_ms)

        await asyncio.gather(*(call(timeout_ms) for timeout_ms in (150, 50, 100)))
        assert finished == [50, 100, 150]
        # those that never had their turn were not sent
        parking.release(0)
        after = asyncio.ensure_future(upstream.forward([request(0, b"after")], MINUTE_MS))
        await parking.has(2)
        assert [bytes(frame[8:]) for frame, _ in parking.parked.values()] == [b"", b"after"]
        parking.release(3)
        assert number_of(await after) == 3


async def test_disconnect_fails_all_requests_and_names_the_broker() -> None:
    parking = Parking()
    async with (
        listening(parking) as listener,
        connected(listener.port, max_in_flight=2) as upstream,
    ):
        calls = [upstream.forward([request(0)], MINUTE_MS) for _ in range(4)]
        waiting = asyncio.gather(*calls, return_exceptions=True)
        await parking.has(2)
        for connection in list(listener.connections):
            connection.abort()
        for error in await waiting:
            assert isinstance(error, Unavailable)
            assert f"127.0.0.1:{listener.port}" in str(error)
        with pytest.raises(Unavailable, match=str(listener.port)):
            await upstream.forward([request(0)], MINUTE_MS)
        await upstream.wait_closed()
        assert upstream.is_closed


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (add_length(struct.pack(">i", 7)), "correlation id 7, but 0"),
        (struct.pack(">i", 2**31 - 1), "at most"),
        (struct.pack(">i", 3), "shortest"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "speaks TLS"),
    ],
)
async def test_invalid_bytes_from_the_broker_close_the_connection(data: bytes, says: str) -> None:
    def handler(connection: Connection, frame: Frame) -> Answer:
        return [data]

    async with listening(handler) as listener, connected(listener.port) as upstream:
        with pytest.raises(Unavailable, match=says):
            await upstream.forward([request(0)], MINUTE_MS)
        assert upstream.is_closed


async def test_unrequested_answer_closes_the_connection() -> None:
    upstream = Upstream("memory", 0, UpstreamSettings())
    transport = MemoryTransport(upstream)
    transport.receive(add_length(struct.pack(">i", 1)))
    assert transport.is_aborted
    await upstream.wait_closed()
    with pytest.raises(Unavailable, match="without a request"):
        await upstream.forward([request(0)], MINUTE_MS)


async def test_unreadable_answer_closes_the_connection() -> None:
    def handler(connection: Connection, frame: Frame) -> Answer:
        return answer(frame, b"\0")

    async with listening(handler) as listener, connected(listener.port) as upstream:
        with pytest.raises(ProtocolError):
            await upstream.call(HEARTBEAT, 4, beat(), MINUTE_MS)
        with pytest.raises(Unavailable, match="Heartbeat v4 cannot be decoded"):
            await upstream.call(HEARTBEAT, 4, beat(), MINUTE_MS)


async def test_correlation_ids_wrap_around() -> None:
    async with listening(echo) as listener, connected(listener.port) as upstream:
        upstream.calls.next_number = 2**31 - 1
        numbers = [number_of(await upstream.forward([request(5)], MINUTE_MS)) for _ in range(3)]
        assert numbers == [2**31 - 1, 0, 1]


async def test_requests_wait_for_a_broker_that_does_not_read() -> None:
    parking = Parking()
    async with (
        listening(parking, max_in_flight=1) as listener,
        connected(listener.port, max_unsent_bytes=100_000) as upstream,
    ):
        body = bytes(1_000_000)
        calls = [
            asyncio.ensure_future(upstream.forward([request(0), body], MINUTE_MS))
            for _ in range(50)
        ]
        await parking.has(1)
        assert upstream.in_flight == 50
        # the kernel's buffers and one request more are all that was taken
        assert upstream.requests < 30
        for number in range(50):
            await parking.has(number + 1)
            parking.release(number)
            assert number_of(await calls[number]) == number


@pytest.mark.parametrize(
    ("host", "port"),
    [("a\0b", 9092), ("x" * 300, 9092), ("é" * 100, 9092), ("127.0.0.1", 70_000)],
    ids=["a zero byte", "a long name", "a long label", "a large port"],
)
async def test_an_impossible_address_names_the_broker(host: str, port: int) -> None:
    with pytest.raises(Unavailable, match="cannot connect"):
        await connect(host, port)


async def test_start_of_each_large_answer_is_reported() -> None:
    sizes = [10, 100_000, 100_000, 10, 150_000]
    large: list[int] = []
    async with listening(echo) as listener, connected(listener.port) as upstream:
        upstream.when_large(large.append)
        for size in sizes:
            await upstream.forward([request(0, bytes(size))], MINUTE_MS)

    assert large == [size + 4 for size in sizes if size > 10]


async def test_a_refused_connection_names_the_broker() -> None:
    port = free_port()
    with pytest.raises(Unavailable, match=f"127.0.0.1:{port}: cannot connect"):
        await connect("127.0.0.1", port)


async def test_connecting_has_a_time_limit() -> None:
    # the plain port never answers a TLS hello
    parking = Parking()
    settings = UpstreamSettings(connect_timeout_ms=100)
    tls = ssl.create_default_context()
    async with listening(parking, max_frame_bytes=2**31 - 1) as listener:
        with pytest.raises(Unavailable, match="no connection within 100 ms"):
            await connect("127.0.0.1", listener.port, settings, tls=tls)


async def test_tls_checks_the_brokers_name(tmp_path_factory: pytest.TempPathFactory) -> None:
    certificates = Certificates.make(tmp_path_factory.mktemp("certificates"), "broker.test")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificates.server)
    client = ssl.create_default_context(cafile=str(certificates.ca))
    async with listening(heartbeats, tls=server) as listener, asyncio.timeout(PATIENCE):
        with pytest.raises(ConfigError, match=f"127.0.0.1:{listener.port}: its certificate"):
            await connect("127.0.0.1", listener.port, tls=client)
        stranger = ssl.create_default_context()
        with pytest.raises(ConfigError, match="certificate"):
            await connect("127.0.0.1", listener.port, tls=stranger, server_hostname="broker.test")
        upstream = await connect(
            "127.0.0.1", listener.port, tls=client, server_hostname="broker.test"
        )
        response = await upstream.call(HEARTBEAT, 4, beat("9"), MINUTE_MS)
        assert response.throttle_time_ms == 9
        upstream.close()
        await upstream.wait_closed()


def whole(frame: Frame) -> bytes:
    return bytes(frame)


async def test_submit_creates_no_task() -> None:
    async with listening(echo) as listener, connected(listener.port) as upstream:
        before = len(asyncio.all_tasks())
        answers = [upstream.submit([request(7, b"%d" % n)], whole) for n in range(500)]
        assert len(asyncio.all_tasks()) == before
        assert [(await answer)[4:] for answer in answers] == [b"%d" % n for n in range(500)]
        assert upstream.in_flight == 0


async def test_submitted_requests_are_read_in_order_as_their_answers_come() -> None:
    seen: list[int] = []
    parking = Parking()
    async with listening(parking) as listener, connected(listener.port) as upstream:
        answers = [
            upstream.submit([request(9)], lambda frame: seen.append(number_of(frame)))
            for _ in range(5)
        ]
        await parking.has(5)
        parking.release(3, 1, 4, 0, 2)
        await answers[4]
        assert seen == [0, 1, 2, 3, 4]


async def test_exception_in_a_reader_fails_only_its_request() -> None:
    def fail(frame: Frame) -> None:
        raise ValueError("not what it expected")

    async with listening(echo) as listener, connected(listener.port) as upstream:
        bad, good = upstream.submit([request(1)], fail), upstream.submit([request(2)], whole)
        with pytest.raises(ValueError, match="not what it expected"):
            await bad
        assert number_of(await good) == 1


async def test_submitted_request_can_have_no_answer() -> None:
    seen: list[bytes] = []

    def handler(connection: Connection, frame: Frame) -> Answer:
        seen.append(bytes(frame[8:]))
        return None if bytes(frame[8:]) == b"acks=0" else answer(frame)

    def fail(frame: Frame) -> Frame:
        raise AssertionError("there is no response to read")

    async with listening(handler) as listener, connected(listener.port) as upstream:
        sent = upstream.submit([request(1, b"acks=0")], fail, CallOptions(is_answered=False))
        assert [await sent] == [None]
        assert number_of(await upstream.submit([request(1, b"acks=1")], whole)) == 1
        assert seen == [b"acks=0", b"acks=1"]


async def test_every_submitted_request_has_its_own_deadline() -> None:
    parking = Parking()
    async with listening(parking) as listener, connected(listener.port) as upstream:
        patient = upstream.submit([request(0)], whole)
        hasty = upstream.submit([request(1)], whole, CallOptions(timeout_ms=30))
        with pytest.raises(Unavailable, match="did not answer a forwarded request within 30 ms"):
            await hasty
        assert not patient.done()
        parking.release(0, 1)
        assert number_of(await patient) == 0
        await wait_until_async(lambda: upstream.late_answers == 1)


async def test_submit_refuses_a_request_without_header_or_connection() -> None:
    async with listening(echo) as listener, connected(listener.port) as upstream:
        with pytest.raises(ProtocolError, match="header"):
            _ = upstream.submit([b"1234567"], whole)
        upstream.close()
        with pytest.raises(Unavailable, match="was closed"):
            _ = upstream.submit([request(0)], whole)


@pytest.mark.parametrize("version", [1, 4])  # their headers have different versions, too
@pytest.mark.parametrize("own_id", [None, "", "the client's own"])
@pytest.mark.parametrize("client_id", [None, "", "tenant-7", "é" * 300])
async def test_client_id_of_a_forwarded_request_is_kept_or_replaced(
    version: int, own_id: str | None, client_id: str | None
) -> None:
    seen: list[tuple[str | None, str]] = []

    def handler(connection: Connection, frame: Frame) -> Answer:
        header, body = read_request(HEARTBEAT, frame)
        seen.append((header.client_id, body.member_id))
        return heartbeats(connection, frame)

    prefix, *parts = request_frame(HEARTBEAT, version, 5, own_id, beat("12"))
    frame = bytes(prefix[4:]) + b"".join(parts)
    async with listening(handler) as listener, connected(listener.port) as upstream:
        # the header's part may end where the header ends
        for cut in (len(frame), len(frame) - 3):
            await upstream.submit(
                [frame[:cut], frame[cut:]], whole, CallOptions(client_id=client_id)
            )
    assert seen == [(own_id if client_id is None else client_id, "12")] * 2


@pytest.mark.parametrize("client_id", [b"\x00\x05abc", b"\xff\xfe", b"\x00"])
async def test_truncated_client_id_cannot_be_replaced(client_id: bytes) -> None:
    async with listening(echo) as listener, connected(listener.port) as upstream:
        with pytest.raises(ProtocolError, match="client id"):
            _ = upstream.submit([request(1, client_id)], whole, CallOptions(client_id="x"))


async def test_call_can_have_its_own_client_id() -> None:
    seen: list[str | None] = []

    def handler(connection: Connection, frame: Frame) -> Answer:
        seen.append(read_request(HEARTBEAT, frame)[0].client_id)
        return heartbeats(connection, frame)

    async with listening(handler) as listener, connected(listener.port) as upstream:
        await upstream.call(HEARTBEAT, 4, beat("1"), MINUTE_MS)
        await upstream.call(HEARTBEAT, 4, beat("1"), MINUTE_MS, client_id="tenant-7")
    assert seen == ["rookery", "tenant-7"]


def in_memory(**settings: int) -> tuple[Upstream, MemoryTransport]:
    upstream = Upstream("memory", 0, UpstreamSettings(**settings))  # type: ignore[arg-type] # all given are numbers
    return upstream, MemoryTransport(upstream)


def response(number: int, body: bytes = b"") -> bytes:
    return add_length(struct.pack(">i", number) + body)


async def test_queued_requests_are_bounded_in_bytes() -> None:
    upstream, transport = in_memory(max_queued_bytes=1000)
    changes: list[bool] = []
    upstream.when_full(changes.append)
    upstream.when_full(lambda _: pytest.fail("it was undone"))()
    upstream.pause_writing()
    answers = [upstream.submit([request(0, bytes(288))], whole) for _ in range(4)]
    assert (upstream.is_full, upstream.queued_bytes, changes) == (True, 1200, [True])
    with pytest.raises(Unavailable, match="1200 bytes of requests wait to be sent, at most 1000"):
        _ = upstream.submit([request(0)], whole)
    # a caller that waits for the answer anyway may still queue
    waiting = asyncio.ensure_future(upstream.forward([request(0)], MINUTE_MS))
    await asyncio.sleep(0)
    assert upstream.in_flight == 5
    upstream.resume_writing()
    assert (upstream.is_full, upstream.queued_bytes, changes) == (False, 0, [True, False])
    transport.receive(b"".join(response(number) for number in range(5)))
    assert [number_of(await answer) for answer in answers] == [0, 1, 2, 3]
    assert number_of(await waiting) == 4
    upstream.close()


async def test_full_upstream_accepts_requests_again_at_half_its_bound() -> None:
    upstream, transport = in_memory(max_queued_bytes=1000, max_in_flight=1)
    answers = [upstream.submit([request(0, bytes(288))], whole) for _ in range(5)]
    assert upstream.is_full
    for number, expected in enumerate([True, True, False]):
        transport.receive(response(number))
        assert upstream.is_full is expected
    assert [answer.done() for answer in answers] == [True, True, True, False, False]
    upstream.close()
    for rest in answers[3:]:
        with pytest.raises(Unavailable, match="was closed"):
            await rest


async def test_expired_or_failed_requests_release_their_bytes() -> None:
    upstream, _ = in_memory(max_queued_bytes=100)
    changes: list[bool] = []
    upstream.when_full(changes.append)
    upstream.pause_writing()
    hasty = upstream.submit([request(0, bytes(200))], whole, CallOptions(timeout_ms=10))
    with pytest.raises(Unavailable, match="within 10 ms"):
        await hasty
    assert (changes, upstream.queued_bytes) == ([True, False], 0)
    patient = upstream.submit([request(0, bytes(200))], whole)
    upstream.close()
    with pytest.raises(Unavailable, match="was closed"):
        await patient
    assert changes == [True, False, True, False]


async def test_a_paused_upstream_reads_nothing_until_it_is_resumed() -> None:
    upstream, transport = in_memory()
    answers = [upstream.submit([request(0)], whole) for _ in range(2)]
    upstream.pause()
    upstream.pause()
    assert not transport.is_reading()
    transport.receive(response(0) + response(1))
    assert not answers[0].done()
    upstream.resume()
    upstream.resume()
    assert [number_of(await answer) for answer in answers] == [0, 1]
    assert transport.is_reading()
    upstream.close()
    upstream.pause()


async def test_kept_responses_are_bounded_in_bytes() -> None:
    upstream, transport = in_memory(max_unread_bytes=1000)
    kept = CallOptions(is_kept=True)
    answers = [upstream.submit([request(0)], whole, kept) for _ in range(4)]
    free = upstream.submit([request(0)], whole)
    transport.receive(b"".join(response(number, bytes(596)) for number in range(5)))
    assert [answer.done() for answer in answers] == [True, True, False, False]
    assert (upstream.unread_bytes, transport.is_reading()) == (1200, False)
    upstream.release(600)
    await asyncio.sleep(0)
    # not yet at half of the bound
    assert not answers[2].done()
    upstream.release(600)
    await answers[3]
    assert (upstream.unread_bytes, transport.is_reading()) == (1200, False)
    upstream.release(1200)
    await free
    # dropped bytes do not count
    assert (upstream.unread_bytes, transport.is_reading()) == (0, True)
    upstream.close()


async def test_pause_and_kept_responses_are_independent() -> None:
    upstream, transport = in_memory(max_unread_bytes=100)
    answers = [upstream.submit([request(0)], whole, CallOptions(is_kept=True)) for _ in range(2)]
    transport.receive(response(0, bytes(96)) + response(1))
    upstream.pause()
    upstream.release(100)
    await asyncio.sleep(0)
    assert (answers[1].done(), transport.is_reading()) == (False, False)
    upstream.resume()
    await answers[1]
    assert transport.is_reading()
    upstream.close()
