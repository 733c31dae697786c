"""The writes of an idempotent producer stay in order while leaders move and connections break."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.proxy.nodes.writeorder import BatchStart, WriteOrder, read_start
from rookery.records.batches import BatchHeader

BATCHES = 8
IN_FLIGHT = 5
FAULTY_STEPS = 300
PARTITION = "birds-0"


def start_of(sequence: int) -> BatchStart:
    return BatchStart(producer_id=7, epoch=0, sequence=sequence)


@dataclass(eq=False)
class Link:
    """A connection to a broker: requests arrive in order, until it breaks."""

    broker: int
    requests: deque[int] = field(default_factory=deque)
    is_over: bool = False


class Cluster:
    """A partition of Kafka that moves from broker to broker; producers are checked as Kafka does.

    No broker leads it twice: if one did between two requests on a connection, it would take the
    second for the producer's first, with or without a proxy.
    """

    def __init__(self) -> None:
        self.leader = 0
        self.log: list[int] = []

    def append(self, broker: int, sequence: int) -> str:
        if broker != self.leader:
            return "moved"
        if self.log and sequence in self.log[-5:]:
            return "ok"
        if self.log and sequence != self.log[-1] + 1:
            return "out of order"
        # A producer that is not known may begin with any sequence.
        self.log.append(sequence)
        return "ok"


class Simulation:
    """A producer, the proxy's rules and a cluster, each of which takes its time."""

    def __init__(self, random: Random, *, is_gated: bool = True) -> None:
        self.random = random
        self.is_gated = is_gated
        self.cluster = Cluster()
        self.order: WriteOrder[Link] = WriteOrder()
        self.links = {0: Link(0)}
        self.known_leader = 0
        self.unsent = deque(range(BATCHES))
        self.sent: deque[int] = deque()
        self.answers: deque[tuple[int, str | None]] = deque()
        self.acknowledged: list[int] = []

    def run(self) -> None:
        for step in range(100_000):
            if len(self.acknowledged) == BATCHES:
                return
            steps = [self.send, self.serve, self.receive, self.receive, self.learn]
            if step < FAULTY_STEPS and self.random.random() < 0.1:
                steps = [self.move, self.cut]
            self.random.choice(steps)()
        raise AssertionError("the producer never ends")

    def send(self) -> None:
        """The client sends its next batch; the proxy forwards it or refuses it."""
        if not self.unsent or len(self.answers) >= IN_FLIGHT:
            return
        sequence = self.unsent.popleft()
        start = start_of(sequence)
        leader = self.known_leader
        link = self.order.find_pinned(PARTITION) or self.links.setdefault(leader, Link(leader))
        if self.is_gated and not self.order.admits(PARTITION, start):
            self.answers.append((sequence, "refused"))
        elif link.is_over:
            self.order.note_refused(PARTITION, start, link)
            self.answers.append((sequence, "refused"))
        else:
            self.order.note_sent(PARTITION, start, link)
            link.requests.append(sequence)
            self.answers.append((sequence, None))

    def serve(self) -> None:
        """A broker answers its oldest request."""
        link = self.random.choice(list(self.links.values()))
        if link.requests:
            sequence = link.requests.popleft()
            self.end(sequence, self.cluster.append(link.broker, sequence))

    def end(self, sequence: int, outcome: str) -> None:
        is_lost = outcome in {"moved", "cut"}
        self.order.note_ended(PARTITION, start_of(sequence), is_lost=is_lost)
        for place, (pending, answer) in enumerate(self.answers):
            if pending == sequence and answer is None:
                self.answers[place] = sequence, outcome
                return
        raise AssertionError(f"{sequence} was not in flight")

    def receive(self) -> None:
        """The client reads the answer to its oldest request, and repeats what has failed."""
        if not self.answers or self.answers[0][1] is None:
            return
        sequence, outcome = self.answers.popleft()
        if outcome == "ok":
            self.acknowledged.append(sequence)
        else:
            self.unsent = deque(sorted([*self.unsent, sequence]))

    def learn(self) -> None:
        """The proxy learns the leader."""
        self.known_leader = self.cluster.leader

    def move(self) -> None:
        self.cluster.leader += 1

    def cut(self) -> None:
        """A connection breaks; some of its requests have arrived all the same."""
        broker = self.random.choice(list(self.links))
        link, self.links[broker] = self.links[broker], Link(broker)
        link.is_over = True
        arrived = self.random.randint(0, len(link.requests))
        for place, sequence in enumerate(list(link.requests)):
            if place < arrived:
                self.cluster.append(broker, sequence)
            self.end(sequence, "cut")


@settings(max_examples=400, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_nothing_is_lost_doubled_or_reordered(seed: int) -> None:
    simulation = Simulation(Random(seed))

    simulation.run()

    assert simulation.cluster.log == list(range(BATCHES))
    assert sorted(simulation.acknowledged) == list(range(BATCHES))
    assert len(simulation.order) == 0


def test_simulation_finds_the_fault_that_the_rule_prevents() -> None:
    """Without the rule, a new leader takes a later batch for the producer's first."""

    def is_broken(seed: int) -> bool:
        simulation = Simulation(Random(seed), is_gated=False)
        try:
            simulation.run()
        except AssertionError:
            return True
        return simulation.cluster.log != list(range(BATCHES))

    assert any(is_broken(seed) for seed in range(300))


def test_new_epoch_is_admitted_after_a_loss() -> None:
    order: WriteOrder[str] = WriteOrder()
    order.note_sent(PARTITION, start_of(3), "link")
    order.note_ended(PARTITION, start_of(3), is_lost=True)

    assert not order.admits(PARTITION, start_of(4))
    assert order.admits(PARTITION, start_of(3))
    assert order.admits(PARTITION, BatchStart(7, 1, 0))
    assert order.admits(PARTITION, BatchStart(8, 0, 4))
    assert order.admits(PARTITION, None)
    order.note_sent(PARTITION, BatchStart(7, 1, 0), "link")
    order.note_ended(PARTITION, BatchStart(7, 1, 0), is_lost=False)
    assert len(order) == 0


def test_sequences_wrap() -> None:
    last = BatchStart(7, 0, 2**31 - 2)

    assert BatchStart(7, 0, 3).follows(last)
    assert not last.follows(BatchStart(7, 0, 3))
    assert not last.follows(last)


def test_writes_without_a_producer_id_are_pinned_only_in_flight() -> None:
    order: WriteOrder[str] = WriteOrder()
    order.note_sent(PARTITION, None, "old leader")
    order.note_sent(PARTITION, None, "old leader")

    assert order.find_pinned(PARTITION) == "old leader"
    assert order.admits(PARTITION, None)
    order.note_ended(PARTITION, None, is_lost=True)
    assert not order.admits(PARTITION, None)
    order.note_ended(PARTITION, None, is_lost=True)
    assert order.find_pinned(PARTITION) is None
    assert len(order) == 0


def test_start_is_read_from_the_batch() -> None:
    header = BatchHeader(0, 49, -1, 2, 0, 0, 0, 0, 0, 7, 3, 12, 1)

    assert read_start(header.pack()) == BatchStart(7, 3, 12)
    assert read_start(header._replace(producer_id=-1).pack()) is None


@pytest.mark.parametrize("records", [None, b"", b"x" * 60, (b"a", b"b")])
def test_records_without_a_producer_have_no_start(records: bytes | None) -> None:
    assert read_start(records) is None
