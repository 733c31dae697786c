"""Bytes that are not a request: wrong lengths, other protocols, false headers, slow clients."""

from __future__ import annotations

import select
import socket
import ssl
import struct
from contextlib import ExitStack, suppress
from itertools import pairwise
from threading import Event

import pytest

from rookery.testing.wire import add_length
from tests.abuse.attack import (
    ENDED,
    SECOND,
    SIMPLE,
    TIMEOUT_SECONDS,
    Attacker,
    framed,
    header,
    is_closed_after,
    simple,
    varint,
)
from tests.abuse.conftest import Bystander
from tests.abuse.targets import Target

LIMIT = 104_857_600
API_VERSIONS, METADATA, PRODUCE = 18, 3, 0
TAGS = b"\x00\x00" * 10**7
MANY = SIMPLE * 500_000
ANSWERS = 30
# What busy clients may get while another one waits for one answer, which takes some turns of the
# loop. 0.3 MB were seen; 2.3 MB when every busy client made each turn longer.
FAIR_BYTES = 1_000_000
SOFTWARE = b"\x06abuse\x021"


@pytest.mark.parametrize(
    "length",
    [-(2**31), -2, -1, 0, 1, 7, LIMIT + 1, 2**31 - 1],
    ids=lambda length: f"length {length}",
)
def test_invalid_frame_length_closes_the_connection(target: Target, length: int) -> None:
    before = target.victim.resident()

    assert is_closed_after(target.door, struct.pack(">i", length) + bytes(64))

    assert target.victim.resident() - before < 1024 * 1024


def test_announced_frame_length_allocates_no_memory(target: Target) -> None:
    before = target.victim.resident()
    with ExitStack() as stack:
        for _ in range(100):
            line = stack.enter_context(Attacker(target.door))
            length = struct.pack(">i", target.max_frame_bytes)
            line.send(length + header(PRODUCE, 9, is_flexible=True))
        # Accepted in order: when the last one is answered, all have been read.
        simple(target.door)

        assert target.victim.resident() - before < 16 * 1024 * 1024


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", id="HTTP"),
        pytest.param(b"POST /topics HTTP/1.1\r\nContent-Length: 9\r\n\r\n{}", id="HTTP POST"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="HTTP/2"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), id="TLS"),
        pytest.param(b"SSH-2.0-OpenSSH_9.7\r\n", id="SSH"),
        pytest.param(b"\xff" * 4096, id="ones"),
        pytest.param(bytes(4096), id="zeros"),
    ],
)
def test_other_protocols_are_rejected(target: Target, words: bytes) -> None:
    assert is_closed_after(target.door, words)


def test_truncated_request_is_dropped_with_its_connection(target: Target) -> None:
    for cut in range(len(SIMPLE)):
        with Attacker(target.door) as line:
            line.send(SIMPLE[:cut])
            line.end_input()

            assert line.read() is None


@pytest.mark.parametrize("size", [2**15 - 1, 32_000])
@pytest.mark.parametrize("letter", [b"a", b"\n", b"\0"])
def test_long_client_id_is_accepted(target: Target, size: int, letter: bytes) -> None:
    with Attacker(target.door) as line:
        for version, body, is_flexible in ((0, b"", False), (3, SOFTWARE + b"\0", True)):
            start = header(API_VERSIONS, version, is_flexible=is_flexible, client=letter * size)
            answer = line.ask(start + body)

            assert answer is not None
            assert answer[4:6] == b"\0\0"


@pytest.mark.parametrize("client", [b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80"])
def test_client_id_that_is_not_utf8_closes_the_connection(target: Target, client: bytes) -> None:
    assert is_closed_after(target.door, framed(header(API_VERSIONS, 0, client=client)))


def test_client_supplied_name_cannot_forge_a_log_line(target: Target) -> None:
    said = target.victim.log.stat().st_size
    forged = b"x\nlevel=error msg=forged"
    with Attacker(target.door) as line:
        line.ask(header(API_VERSIONS, 0, client=forged))
        line.ask(header(METADATA, 1, client=forged) + struct.pack(">ih", 1, 24) + forged)
        line.ask(header(METADATA, 99, client=forged))

    assert not any(
        line.startswith("level=error") for line in target.victim.words(said).splitlines()
    )


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        pytest.param(API_VERSIONS, 3, SOFTWARE + b"\0", id="ApiVersions"),
        pytest.param(METADATA, 12, b"\0\1\0\0", id="Metadata"),
    ],
)
@pytest.mark.parametrize("place", ["header", "body"])
def test_ten_million_tags_close_the_connection(
    target: Target, key: int, version: int, body: bytes, place: str
) -> None:
    tags = varint(10**7) + TAGS
    start = header(key, version, is_flexible=True, tags=tags if place == "header" else b"\0")
    request = start + (body[:-1] + tags if place == "body" else body)

    assert is_closed_after(target.door, framed(request))


def test_many_distinct_tags_are_bounded(target: Target) -> None:
    # As many as fit into a request before the login (CVE-2026-111115).
    count = 120_000
    tags = varint(count) + b"".join(varint(tag) + b"\0" for tag in range(100, 100 + count))

    assert is_closed_after(
        target.door,
        framed(header(API_VERSIONS, 3, is_flexible=True, tags=tags) + SOFTWARE + b"\0"),
    )


@pytest.mark.parametrize(
    "tags", [b"\x02\x07\x00\x07\x00", b"\x02\x08\x00\x07\x00"], ids=["twice", "out of order"]
)
def test_tags_must_ascend(target: Target, tags: bytes) -> None:
    request = header(API_VERSIONS, 3, is_flexible=True, tags=tags) + SOFTWARE + b"\0"

    assert is_closed_after(target.door, framed(request))


def test_a_thousand_requests_without_reading_are_answered_in_order(target: Target) -> None:
    count = 1000
    # Before the login, only ApiVersions is answered.
    requests = [
        struct.pack(">hhih", API_VERSIONS, 0, number, -1)
        if target.is_stranger
        else struct.pack(">hhihi", METADATA, 1, number, -1, -1)
        for number in range(count)
    ]
    with Attacker(target.door) as line:
        line.send(b"".join(map(add_length, requests)))

        answers = [line.read() for _ in range(count)]

    numbers = [int.from_bytes((answer or b"")[:4], "big") for answer in answers]
    assert all(after == before + 1 for before, after in pairwise(numbers))


def send_much(line: Attacker) -> None:
    """Send far more than buffers hold: the broker stops reading long before the end."""
    for _ in range(10):
        line.socket.sendall(MANY)


def test_clients_that_never_read_are_throttled(target: Target) -> None:
    """Responses that no client reads must not pile up in the broker."""
    before = target.victim.resident()
    with ExitStack() as stack:
        for _ in range(2):
            line = stack.enter_context(Attacker(target.door))
            line.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.socket.settimeout(0.2)
            with pytest.raises(TimeoutError):
                send_much(line)

        assert target.victim.resident() - before < 16 * 1024 * 1024


def test_busy_clients_do_not_starve_others(target: Target) -> None:
    """Whatever ten busy clients get while another one waits for an answer is bounded."""
    other = Bystander(target.victim.door, target.victim.question, pause_seconds=0)
    other.await_answers(1)
    start = count = 0
    with ExitStack() as stack:
        stack.callback(other.stop)
        lines = [stack.enter_context(Attacker(target.door)).socket for _ in range(10)]
        for line in lines:
            line.setblocking(False)
        while lines and other.error is None:
            if not count:  # they are not busy yet
                start = other.asked
            elif other.asked >= start + ANSWERS:
                break
            # They read what is there, so that nothing but fairness holds them back.
            readable, writable, _ = select.select(lines, lines, [], TIMEOUT_SECONDS)
            for line in readable:
                with suppress(BlockingIOError, ssl.SSLWantReadError):
                    count += len(line.recv(1024 * 1024))
            for line in writable:
                try:
                    line.send(MANY)
                except (BlockingIOError, ssl.SSLWantWriteError):
                    continue
                except ENDED:
                    # The time for a login is over.
                    assert target.is_stranger
                    lines.remove(line)

    assert other.error is None
    assert other.asked >= start + ANSWERS or not lines
    assert 0 < count < (other.asked - start + 1) * FAIR_BYTES


def test_slow_clients_do_not_delay_others(target: Target) -> None:
    """Two hundred clients send a byte at a time; `bystander` sees whether others notice."""
    with ExitStack() as stack:
        lines = [stack.enter_context(Attacker(target.door)) for _ in range(200)]
        for byte in SIMPLE[:-1]:
            for line in lines:
                line.send(bytes([byte]))
            Event().wait(0.01)
            simple(target.door)
        for line in lines:
            line.send(SIMPLE[-1:])
            answer = line.read()
            assert answer is not None
            assert answer[:4] == struct.pack(">i", SECOND)
