"""Clients that ask for much and read nothing fill the memory that responses share."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from kio.schema.errors import ErrorCode

from tests.abuse.attack import Attacker, Door, framed
from tests.abuse.batches import MEBIBYTE, batch, record
from tests.abuse.targets import ADMITTED, Target
from tests.abuse.topics import (
    code_of_produce,
    fetch_request,
    fetched,
    make_topic,
    produce_request,
)

pytestmark = ADMITTED

ANSWER_BYTES = 48 * MEBIBYTE
# The limit, by how much it may be passed, and what reading and the allocator need meanwhile;
# without a limit it is a gigabyte.
GROWTH_BYTES = ANSWER_BYTES * 5 // 4 + 80 * MEBIBYTE
READERS = 40
TOPIC, BATCHES = "slow", 60
BATCH = batch(record(bytes(1_000_000)))
ASKED = 50 * MEBIBYTE


@pytest.fixture
def flags() -> tuple[str, ...]:
    """Leave little room for answers."""
    return ("--answer-bytes", str(ANSWER_BYTES))


def fill_topic(door: Door) -> None:
    """Make a topic that is larger than the room."""
    make_topic(door, TOPIC)
    with Attacker(door) as line:
        for _ in range(BATCHES):
            answer = line.ask(produce_request(TOPIC, BATCH))
            assert answer is not None
            assert code_of_produce(answer) is ErrorCode.none


def read_all(door: Door) -> int:
    """Read the topic as a good client does; return how many batches it got."""
    count = 0
    with Attacker(door) as line:
        while count < BATCHES:
            frame = line.ask(fetch_request(TOPIC, offset=count, max_bytes=ASKED))
            assert frame is not None, "a client that reads was cut off"
            batches = fetched(frame)
            assert batches, "a fetch brought nothing, though there is more"
            assert len(batches) % len(BATCH) == 0
            count += len(batches) // len(BATCH)
    return count


def test_slow_readers_share_one_memory_bound_and_others_are_served(target: Target) -> None:
    fill_topic(target.door)
    small = target.victim
    # A proxy cannot make a response smaller: one more than fits can be on its way.
    growth = GROWTH_BYTES + (ASKED if target.is_proxied else 0)
    before = small.forget_peak()
    request = framed(fetch_request(TOPIC, max_bytes=ASKED))
    with ExitStack() as stack:
        readers = [
            stack.enter_context(Attacker(target.door, receive_bytes=4096)) for _ in range(READERS)
        ]
        for reader in readers:
            reader.send(request * 4)
        for reader in readers[:4]:
            reader.wait_for_bytes()

        assert read_all(target.door) == BATCHES
        with Attacker(target.door) as good:
            good.ask_simple()
        assert small.peak() - before < growth

        # Those who hold most are cut off until the others have room.
        small.wait_for_words("closing a connection: it holds")
        assert read_all(target.door) == BATCHES
    assert small.peak() - before < growth
