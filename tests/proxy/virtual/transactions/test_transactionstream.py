"""Each batch that a transaction's producer sees stored is in the log once.

A model of Kafka's checks stands for the partition. Clients send batches of several virtual
partitions through several instances, whose connections break before and after Kafka has appended.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from random import Random
from typing import NamedTuple

import pytest

from rookery.errors import ApiError, ErrorCode
from rookery.proxy.virtual.transactions.transactionstream import (
    FAILED,
    BatchOutcome,
    BatchState,
    StreamBatch,
    TransactionStream,
    TransactionStreams,
)

SLOTS = 3
OK = ErrorCode.NONE
LOST = BatchOutcome(ErrorCode.REQUEST_TIMED_OUT)


class LogBatch(NamedTuple):
    """A batch in the log."""

    slot: int
    sequence: int
    size: int
    content: tuple[int, int]
    """The virtual partition, and the client's sequence."""


class ModelPartition:
    """The checks of one Kafka partition for one producer and epoch."""

    def __init__(self, *, is_strict: bool) -> None:
        self.log: list[LogBatch] = []
        self._is_strict = is_strict
        self._last: deque[int] = deque(maxlen=5)

    def append(self, batch: LogBatch) -> tuple[ErrorCode, int]:
        """Return the code and the offset."""
        for offset in self._last:
            known = self.log[offset]
            if (known.sequence, known.size) == (batch.sequence, batch.size):
                return OK, offset
        wanted = self.log[-1].sequence + self.log[-1].size if self.log else 0
        if batch.sequence != wanted and (self.log or self._is_strict):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        self.log.append(batch)
        self._last.append(len(self.log) - 1)
        return OK, len(self.log) - 1


class ModelInstance:
    """One instance of the proxy, with one connection to the broker."""

    def __init__(self, partition: ModelPartition) -> None:
        self.stream = TransactionStream(0)
        self.partition = partition
        self.requests: deque[tuple[StreamBatch, LogBatch]] = deque()
        self.zombies: deque[LogBatch] = deque()
        """Requests of broken connections that the broker may still read."""

    def send(self, slot: int, first: int, count: int) -> StreamBatch | ErrorCode:
        try:
            batch = self.stream.admit(slot, first, count)
        except ApiError as error:
            return error.code
        self._pump()
        return batch

    def answer(self, *, is_late: bool = False) -> None:
        """Let the broker append the batch of one request, and answer, unless it is too late."""
        if not self.requests:
            return
        batch, sent = self.requests.popleft()
        code, offset = self.partition.append(sent)
        if is_late:
            code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        verdict = BatchOutcome(code, is_out_of_order=code is FAILED.code)
        if not code:
            found = self.partition.log[offset]
            is_own = (found.slot, found.sequence) == (batch.slot, batch.sequence)
            verdict = BatchOutcome(OK, offset) if is_own else FAILED
        self.stream.judge(batch, verdict)
        self._pump()

    def cut(self, random: Random) -> None:
        """Break the connection."""
        lost, self.requests = self.requests, deque()
        kept = random.randint(0, len(lost))
        self.zombies.extend(sent for _, sent in list(lost)[:kept])
        for batch, _ in lost:
            self.stream.judge(batch, LOST)
        self._pump()

    def read_zombie(self) -> None:
        if self.zombies:
            self.partition.append(self.zombies.popleft())

    def restart(self, random: Random) -> None:
        """Forget everything."""
        self.cut(random)
        self.stream = TransactionStream(0)

    def _pump(self) -> None:
        for batch in self.stream.take_ready():
            content = batch.slot, batch.first
            sent = LogBatch(batch.slot, batch.sequence, batch.count, content)
            self.requests.append((batch, sent))


class ModelClient:
    """A client: up to five batches of each virtual partition in flight, repeated in order."""

    def __init__(self, instances: list[ModelInstance], random: Random) -> None:
        self.instances = instances
        self.random = random
        self.acked: list[tuple[int, int, int]] = []
        self.todo = {slot: self._batches(random.randint(0, 6), random) for slot in range(SLOTS)}
        self.flying: dict[int, list[tuple[int, int, StreamBatch | ErrorCode]]] = {
            slot: [] for slot in range(SLOTS)
        }
        self.is_aborted = False

    def _batches(self, number: int, random: Random) -> list[tuple[int, int]]:
        first, batches = 0, []
        for _ in range(number):
            count = random.choice((1, 1, 2))
            batches.append((first, count))
            first += count
        return batches

    @property
    def is_done(self) -> bool:
        return self.is_aborted or not (any(self.todo.values()) or any(self.flying.values()))

    def act(self, instance: ModelInstance) -> None:
        """Send a batch of some partition through an instance, or receive some outcomes."""
        slot = self.random.randrange(SLOTS)
        todo, flying = self.todo[slot], self.flying[slot]
        while flying:
            first, count, sent = flying[0]
            code = sent if isinstance(sent, ErrorCode) else _code(sent)
            if code is None:
                break
            if code is OK:
                self.acked.append((slot, first, count))
                flying.pop(0)
                continue
            if not code.retriable:
                self.is_aborted = True
                return
            # This one and those after it are sent again.
            self.todo[slot] = todo = [(each[0], each[1]) for each in flying] + todo
            flying.clear()
        if todo and len(flying) < 5:
            first, count = todo.pop(0)
            flying.append((first, count, instance.send(slot, first, count)))


def _code(batch: StreamBatch) -> ErrorCode | None:
    return batch.outcome.result().code if batch.outcome.done() else None


def step(
    random: Random, client: ModelClient, instances: list[ModelInstance], current: ModelInstance
) -> ModelInstance:
    """Let something happen; return the instance that the client believes to lead."""
    match random.randrange(42):
        case 0 | 1:
            return random.choice(instances)
        case 2:
            current.cut(random)
        case 3:
            random.choice(instances).restart(random)
        case 4 | 5:
            random.choice(instances).read_zombie()
        case 6 | 7:
            random.choice(instances).answer(is_late=True)
        case roll if roll % 2:
            random.choice(instances).answer()
        case _:
            client.act(current if random.random() < 0.9 else random.choice(instances))
    return current


def play(seed: int) -> str:
    """Play one transaction; return how it ended."""
    random = Random(seed)
    partition = ModelPartition(is_strict=bool(seed % 2))
    instances = [ModelInstance(partition) for _ in range(2)]
    client = ModelClient(instances, random)
    current = instances[0]
    for _ in range(2_000):
        if client.is_done:
            break
        current = step(random, client, instances, current)
        # A client that knows all outcomes may end the transaction: no batch may follow.
        assert not any(sent.outcome.done() for each in instances for sent, _ in each.requests)
    if client.is_aborted:
        return "aborted"
    if not client.is_done:
        return "unfinished"
    contents = [each.content for each in partition.log]
    assert Counter(contents) == Counter((slot, first) for slot, first, _ in client.acked)
    for slot in range(SLOTS):
        own = [first for owner, first in contents if owner == slot]
        assert own == sorted(own)
    return "committed"


def test_nothing_acknowledged_is_missing_doubled_or_out_of_order() -> None:
    async def run() -> Counter[str]:
        return Counter(play(seed) for seed in range(4_000))

    ends = asyncio.run(run())

    assert ends["unfinished"] == 0
    assert ends["committed"] > 400
    assert ends["aborted"] > 400


def test_without_faults_every_transaction_commits() -> None:
    async def run() -> Counter[str]:
        return Counter(play_alone(seed) for seed in range(500))

    assert asyncio.run(run()) == {"committed": 500}


def play_alone(seed: int) -> str:
    random = Random(seed)
    partition = ModelPartition(is_strict=True)
    instance = ModelInstance(partition)
    client = ModelClient([instance], random)
    while not client.is_done:
        if random.random() < 0.1:
            instance.cut(random)
            instance.zombies.clear()
        instance.answer()
        client.act(instance)
    assert len(partition.log) == len(client.acked)
    return "aborted" if client.is_aborted else "committed"


def test_a_lower_epoch_is_fenced_and_a_higher_one_starts_over() -> None:
    async def run() -> None:
        streams = TransactionStreams()
        first = streams.find("key", 3)
        assert streams.find("key", 3) is first
        assert streams.find("key", 4) is not first
        with pytest.raises(ApiError) as fenced:
            streams.find("key", 3)
        assert fenced.value.code is ErrorCode.INVALID_PRODUCER_EPOCH

    asyncio.run(run())


def test_only_five_batches_are_in_flight() -> None:
    async def run() -> None:
        stream = TransactionStream(0)
        batches = [stream.admit(slot, 0, 1) for slot in range(8)]
        sent = stream.take_ready()
        assert sent == batches[:5]
        stream.judge(batches[0], BatchOutcome(OK, 7))
        assert batches[0].state is BatchState.STORED
        assert stream.take_ready() == [batches[5]]
        # Unsent batches lose their numbers when an earlier one is lost.
        stream.judge(batches[1], LOST)
        assert batches[7].outcome.result().code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    asyncio.run(run())


def test_a_batch_that_waits_can_be_withdrawn() -> None:
    async def run() -> None:
        stream = TransactionStream(0)
        batches = [stream.admit(slot, 0, 1) for slot in range(8)]
        sent = stream.take_ready()
        stream.withdraw(batches[6])
        stream.withdraw(batches[0])
        assert [each.state for each in batches[:6]] == [BatchState.SENT] * 5 + [BatchState.WAITING]
        assert all(each.outcome.result().is_lost for each in batches[6:])
        for each in sent:
            stream.judge(each, BatchOutcome(OK, 0))
        assert stream.take_ready() == [batches[5]]
        # It comes again under the next number.
        assert stream.admit(7, 0, 1).sequence == batches[5].sequence + 1

    asyncio.run(run())
