"""Requests within the limit of bytes that name more things than any cluster has.

A byte or two name a thing, and every thing is an object in the broker, and one in its answer.
"""

from __future__ import annotations

import struct

import pytest

from tests.abuse.attack import Attacker, framed, header, varint
from tests.abuse.samples import TOPIC
from tests.abuse.targets import Target
from tests.abuse.topics import make_topic

MEBIBYTE = 1024 * 1024
SIZE = 4 * MEBIBYTE
GROWTH_BYTES = 128 * MEBIBYTE


def text(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


def many(head: bytes, item: bytes, tail: bytes = b"", *, is_compact: bool = False) -> bytes:
    """Repeat an item until the request has its size."""
    count = SIZE // len(item)
    length = varint(count + 1) if is_compact else struct.pack(">i", count)
    return head + length + item * count + tail


ONE_TOPIC = struct.pack(">i", 1) + text(TOPIC.encode())
SOON = struct.pack(">i", 1000)
REQUESTS = {
    "Metadata of empty names": many(header(3, 1), text(b"")),
    "Metadata of one name": many(header(3, 1), text(b"zz")),
    "Metadata by id": many(
        header(3, 12, is_flexible=True), bytes(16) + b"\x01\0", b"\0\0\0", is_compact=True
    ),
    "ListOffsets of empty topics": many(header(2, 1) + struct.pack(">i", -1), text(b"") + bytes(4)),
    "ListOffsets of one partition": many(
        header(2, 1) + struct.pack(">i", -1) + ONE_TOPIC, struct.pack(">iq", 0, -1)
    ),
    "Fetch of one partition": many(
        header(1, 4) + struct.pack(">iiiib", -1, 0, 0, 1024, 0) + ONE_TOPIC,
        struct.pack(">iqi", 0, 0, 100),
    ),
    "Produce of empty topics": many(
        header(0, 3) + struct.pack(">hhi", -1, 1, 1000), text(b"") + bytes(4)
    ),
    "DeleteTopics": many(header(20, 1), text(b"q"), SOON),
    "DescribeConfigs": many(header(32, 1), b"\x02" + text(b"a") + struct.pack(">i", -1), b"\0"),
    "AlterConfigs": many(header(33, 0), b"\x02" + text(b"a") + bytes(4), b"\0"),
    "CreateTopics": many(
        header(19, 2), text(b"a") + struct.pack(">ihii", 1, 1, 0, 0), SOON + b"\0"
    ),
    "OffsetForLeaderEpoch": many(header(23, 2) + ONE_TOPIC, bytes(12)),
    "ElectLeaders": many(header(43, 0) + ONE_TOPIC, bytes(4), SOON),
    "DescribeProducers": many(
        header(61, 0, is_flexible=True) + b"\x02\x06abuse", bytes(4), b"\0\0", is_compact=True
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_request_with_too_many_items_takes_bounded_memory(target: Target, name: str) -> None:
    """It may be answered or refused; memory and the others' time (`bystander`) are what counts."""
    victim = target.victim
    if target.is_admitted:
        make_topic(target.door, TOPIC)
    before = victim.forget_peak()
    with Attacker(target.door) as line:
        line.send(framed(REQUESTS[name]))
        line.read()

    assert victim.peak() - before < GROWTH_BYTES
