"""Very many clients, groups, ids and topics, each of which asks for little.

A client of Kafka may have as many groups, ids and topics as it likes. They must cost little memory,
and others (`bystander`) must be served meanwhile.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32

from rookery.testing.wait import wait_until
from tests.abuse.attack import SIMPLE, Attacker, framed, header, simple
from tests.abuse.brokers import open_broker
from tests.abuse.conftest import Bystander
from tests.abuse.samples import TOPIC
from tests.abuse.topics import ask_on, make_topic
from tests.abuse.victims import Victim

SLOW = 5_000
MANY = 100_000
PIPELINED = 500
CONNECTION_BYTES = 16 * 1024
BUFFER_BYTES = 64 * 1024
"""What a connection with a part of a request has in addition."""
# Bytes of state for each of them; 3 300, 600 and 1 700 were seen.
GROUP_BYTES, ID_BYTES, TOPIC_BYTES = 5_000, 1_500, 4_000
OFFSET_COMMIT, INIT_PRODUCER_ID = 8, 22
REAPED = "the handshake was not finished within 10000 ms"


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Victim]:
    """A broker of its own: what the test creates would stay."""
    with open_broker(tmp_path) as broker:
        make_topic(broker.door, TOPIC)
        yield broker
        assert broker.stop() == 0


def test_thousands_of_slow_clients_are_closed_and_do_not_delay_others(
    victim: Victim, bystander: Bystander
) -> None:
    """They send a byte of their first request now and then; half of them stop altogether."""
    before, sockets = victim.resident(), victim.sockets()
    with ExitStack() as stack:
        lines = [stack.enter_context(Attacker(victim.door)) for _ in range(SLOW)]
        for byte in SIMPLE[:3]:
            for line in lines[: SLOW // 2]:
                line.send(bytes([byte]))
            bystander.await_answers(1)
            simple(victim.door)
        growth = SLOW * CONNECTION_BYTES + SLOW // 2 * BUFFER_BYTES
        assert victim.resident() - before < growth

        # They get no more time than other clients for their first request.
        assert {line.read() for line in lines} == {None}
    victim.wait_for_sockets(sockets)
    wait_until(lambda: victim.words().count(REAPED), accepts=lambda count: count >= SLOW)


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def commit(number: int) -> bytes:
    """Return a request that creates a group with one offset."""
    partition = struct.pack(">iqh", 0, 0, -1)
    topic = text(TOPIC) + struct.pack(">i", 1) + partition
    member = struct.pack(">i", -1) + text("") + struct.pack(">q", -1)
    return header(OFFSET_COMMIT, 2) + text(f"g-{number}") + member + struct.pack(">i", 1) + topic


def code_of_commit(answer: bytes) -> int:
    return int.from_bytes(answer[-2:], "big", signed=True)


def begin(number: int) -> bytes:
    """Return a request that creates a transactional id."""
    return header(INIT_PRODUCER_ID, 1) + text(f"t-{number}") + struct.pack(">i", 60_000)


def code_of_begin(answer: bytes) -> int:
    return int.from_bytes(answer[8:10], "big", signed=True)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("make", "code_of", "item_bytes"),
    [
        pytest.param(commit, code_of_commit, GROUP_BYTES, id="groups"),
        pytest.param(begin, code_of_begin, ID_BYTES, id="transactional ids"),
    ],
)
def test_hundred_thousand_groups_or_ids_take_bounded_memory(
    victim: Victim,
    make: Callable[[int], bytes],
    code_of: Callable[[bytes], int],
    item_bytes: int,
) -> None:
    before, codes = victim.resident(), set[int]()
    with Attacker(victim.door) as line:
        for start in range(0, MANY, PIPELINED):
            numbers = range(start, start + PIPELINED)
            assert line.send(b"".join(framed(make(number)) for number in numbers))
            for _ in numbers:
                answer = line.read()
                assert answer is not None
                codes.add(code_of(answer))

    assert codes == {0}
    assert victim.resident() - before < MANY * item_bytes


@pytest.mark.timeout(300)
def test_hundred_thousand_topics_take_bounded_memory(victim: Victim) -> None:
    before = victim.resident()
    with Attacker(victim.door) as line:
        for start in range(0, MANY, PIPELINED):
            topics = tuple(
                CreatableTopic(
                    name=TopicName(f"crowd-{number}"),
                    num_partitions=i32(1),
                    replication_factor=i16(1),
                    assignments=(),
                    configs=(),
                )
                for number in range(start, start + PIPELINED)
            )
            request = CreateTopicsRequest(topics=topics, validate_only=False)
            answer = ask_on(line, request, CreateTopicsResponse)
            assert {topic.error_code for topic in answer.topics} == {ErrorCode.none}

    assert victim.resident() - before < MANY * TOPIC_BYTES
