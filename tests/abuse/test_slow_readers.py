"""Clients that ask for much and read nothing fill the memory that answers share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.abuse.attack import Attacker, framed
from tests.abuse.batches import MEBIBYTE, batch, record
from tests.abuse.topics import fetch_request, fetched, make_topic, produce_request
from tests.abuse.victims import FLAGS, Victim

ANSWER_BYTES = 48 * MEBIBYTE
# The limit, by how much it may be passed, and what reading and the allocator need meanwhile;
# without a limit it is a gigabyte.
GROWTH_BYTES = ANSWER_BYTES * 5 // 4 + 80 * MEBIBYTE
READERS = 40
TOPIC, BATCHES = "slow", 60
BATCH = batch(record(bytes(1_000_000)))
ASKED = 50 * MEBIBYTE


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Victim]:
    """A broker with little room for answers, and a topic that is larger than it."""
    flags = ("--answer-bytes", str(ANSWER_BYTES), "--unread-timeout-ms", "1500")
    with Victim(tmp_path / "data", flags=(*FLAGS, *flags)) as broker:
        make_topic(broker.port, TOPIC)
        with Attacker(broker.port) as line:
            for _ in range(BATCHES):
                assert line.ask(produce_request(TOPIC, BATCH)) is not None
        yield broker


def slow_reader(stack: ExitStack, port: int) -> Attacker:
    return stack.enter_context(Attacker(port, receive_bytes=4096))


def read_all(port: int) -> int:
    """Read the topic as a good client does; return how many batches it got."""
    count = 0
    with Attacker(port) as line:
        while count < BATCHES:
            frame = line.ask(fetch_request(TOPIC, offset=count, max_bytes=ASKED))
            assert frame is not None, "a client that reads was cut off"
            found = fetched(frame)
            assert found, "a fetch brought nothing, though there is more"
            assert len(found) % len(BATCH) == 0
            count += len(found) // len(BATCH)
    return count


def test_slow_readers_share_one_memory_bound_and_others_are_served(small: Victim) -> None:
    before = small.forget_peak()
    request = framed(fetch_request(TOPIC, max_bytes=ASKED))
    with ExitStack() as stack:
        readers = [slow_reader(stack, small.port) for _ in range(READERS)]
        for reader in readers:
            reader.send(request * 4)
        for reader in readers[:4]:
            reader.wait_for_bytes()

        assert read_all(small.port) == BATCHES
        with Attacker(small.port) as good:
            good.ask_simple()
        assert small.peak() - before < GROWTH_BYTES

        # Those who hold most are cut off until the others have room.
        small.wait_for_words("closing a connection: it holds")
        assert read_all(small.port) == BATCHES
    assert small.peak() - before < GROWTH_BYTES
