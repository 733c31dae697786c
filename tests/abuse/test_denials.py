"""A user without rules who asks for much: every denial is recorded, in little memory."""

from __future__ import annotations

import struct

from kio.schema.errors import ErrorCode

from tests.abuse.attack import Attacker, framed, header
from tests.abuse.batches import GZIP, MEBIBYTE, batch, gzip_bomb
from tests.abuse.brokers import Fortress
from tests.abuse.topics import describe, produce
from tests.abuse.victims import OWN_TOPIC

METADATA, DESCRIBE_GROUPS = 3, 15
GROWTH_BYTES = 24 * MEBIBYTE
LOG_BYTES = 4 * MEBIBYTE


def ask_for_long_names(fortress: Fortress, key: int, version: int) -> None:
    """Ask for ten times a hundred names of 30 KB that no other request has."""
    with Attacker(fortress.guest) as line:
        for turn in range(10):
            names = [b"%d-%d-%d-" % (key, turn, number) for number in range(100)]
            items = [struct.pack(">h", 30_000) + name.ljust(30_000, b"x") for name in names]
            body = struct.pack(">i", len(items)) + b"".join(items)
            line.send(framed(header(key, version) + body))
            assert line.read() is not None


def test_denials_of_long_names_take_bounded_memory_and_log(fortress: Fortress) -> None:
    # What the first requests leave in the allocator is not what this is about.
    ask_for_long_names(fortress, METADATA, 1)
    fortress.wait_for_audit()
    before, said, audited = fortress.resident(), fortress.log.stat().st_size, fortress.audited()

    for _ in range(2):
        ask_for_long_names(fortress, DESCRIBE_GROUPS, 0)
    fortress.wait_for_audit()

    assert fortress.resident() - before < GROWTH_BYTES
    assert fortress.log.stat().st_size - said < LOG_BYTES
    assert fortress.audited() - audited < 2 * LOG_BYTES


def test_denied_names_reveal_nothing(fortress: Fortress) -> None:
    answers = describe(fortress.guest, [OWN_TOPIC, "no-such-topic"])

    assert {answer.error_code for answer in answers} == {ErrorCode.topic_authorization_failed}
    assert {answer.topic_id for answer in answers} == {None}
    assert not any(answer.partitions for answer in answers)


def test_denied_records_are_not_expanded(fortress: Fortress) -> None:
    bomb = batch(gzip_bomb(1024 * MEBIBYTE), codec=GZIP)
    before = fortress.forget_peak()

    assert produce(fortress.guest, OWN_TOPIC, bomb) is ErrorCode.topic_authorization_failed

    assert fortress.peak() - before < GROWTH_BYTES
