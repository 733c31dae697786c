"""A cluster log whose calls fail at random, and producers that tolerate this."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final, Literal

from rookery.cluster.port import READ_BYTES, LogEntry
from rookery.errors import ErrorCode, Unavailable
from rookery.net.upstream import connect
from rookery.records.recordcodec import BatchSettings
from rookery.testing.cluster import AppendFault, FaultyLog
from rookery.testing.ports import HOST
from rookery.wire.messages.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from tests.broker.raw import Raw, batch
from tests.broker.txns import Transactor

RATE: Final = 0.04
_LATEST_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.02
_CHANGED_PLACE: Final = 0.02
PARTITIONS: Final = 3


class FlakyLog(FaultyLog):
    """Fails one call in 25: an append before its effect, after it, or up to 2 s before it."""

    chance: Random
    rate = 0.0
    late: set[asyncio.Task[int]]

    def fail_at_random(self, chance: Random) -> None:
        """Start to fail calls."""
        self.chance, self.rate, self.late = chance, RATE, set()

    async def heal(self) -> None:
        """Fail no more, and wait for the appends that arrive late."""
        self.rate = 0.0
        self.mend()
        await asyncio.gather(*self.late)

    async def append(self, data: bytes) -> int:
        """Append, perhaps later, perhaps without an answer."""
        if self._fails():
            match self.chance.choice(("before", "after", "late", "slow")):
                case "before":
                    self.order(AppendFault.NOT_SENT)
                case "after":
                    self.order(AppendFault.LOST_ANSWER)
                case "late":
                    self.late.add(asyncio.create_task(self._append_later(data)))
                    raise Unavailable("the append arrives later")
                case _:
                    await asyncio.sleep(self.chance.random() * 0.3)
        return await super().append(data)

    async def _append_later(self, data: bytes) -> int:
        await asyncio.sleep(self.chance.random() * _LATEST_SECONDS)
        return await self._log.append(data)

    async def read(self, after: int, max_bytes: int = READ_BYTES) -> list[LogEntry]:
        """Read, or fail."""
        self.failing_reads = int(self._fails())
        return await super().read(after, max_bytes)

    async def head(self) -> int:
        """Return the head, likewise."""
        if self._fails():
            raise Unavailable("the head is not known")
        return await super().head()

    async def wait(self, after: int) -> int:
        """Wait, sometimes longer than necessary."""
        head = await super().wait(after)
        if self._fails():
            await asyncio.sleep(self.chance.random() * 0.5)
        return head

    def _fails(self) -> bool:
        return self.rate > 0 and self.chance.random() < self.rate


class Clients:
    """The part that all clients share: where they connect, and when they end."""

    def __init__(self, ports: Callable[[], list[int]], chance: Random) -> None:
        """Prepare.

        Args:
            ports: returns where brokers listen at present.
            chance: chooses among them.
        """
        self._ports = ports
        self.chance = chance
        self.stopping = asyncio.Event()
        self.codes: Counter[str] = Counter()
        """The number of requests that ended with an error."""

    async def connect(self) -> Raw:
        """Connect to some broker."""
        while True:
            try:
                return Raw(await connect(HOST, self.chance.choice(self._ports())))
            except Unavailable:
                await self.rest()

    async def rest(self) -> None:
        """Wait before a request is tried again."""
        await asyncio.sleep(_PAUSE_SECONDS)

    def note(self, what: str, code: ErrorCode) -> bool:
        """Count an answer; return whether it is a success."""
        self.codes[f"{what} {code.name}"] += 1
        return code is ErrorCode.NONE


class IdempotentProducer:
    """Has one batch in flight, and sends it to any broker until one has acknowledged it."""

    def __init__(self, clients: Clients, number: int) -> None:
        self._clients = clients
        self.name = b"i%d-" % number
        self.partition = number % PARTITIONS
        self.acked: list[bytes] = []

    async def work(self) -> None:
        """Write until it must stop."""
        clients, line, producer_id = self._clients, await self._clients.connect(), -1
        while not clients.stopping.is_set():
            try:
                if producer_id < 0:
                    producer_id = await self._init(line)
                    continue
                await self._send(line, producer_id)
            except Unavailable:
                line.upstream.close()
                line = await clients.connect()
            if clients.chance.random() < _CHANGED_PLACE:
                line.upstream.close()
                line = await clients.connect()
        line.upstream.close()

    async def _init(self, line: Raw) -> int:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = await line.ask(INIT_PRODUCER_ID, 4, request)
        if self._clients.note("id", answer.error_code):
            return answer.producer_id
        await self._clients.rest()
        return -1

    async def _send(self, line: Raw, producer_id: int) -> None:
        value = self.name + b"%d" % len(self.acked)
        settings = BatchSettings(
            producer_id=producer_id, producer_epoch=0, base_sequence=len(self.acked)
        )
        sent = batch(value, settings=settings)
        answer = await line.produce("plain", sent, partition=self.partition)
        # With one batch in flight, none can come before its predecessor.
        assert answer.error_code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if self._clients.note("produce", answer.error_code):
            self.acked.append(value)
        else:
            await self._clients.rest()


Outcome = Literal["committed", "aborted", "unknown"]


class TransactionalProducer:
    """Commits most of its transactions, aborts some, and does not know the outcome of others."""

    def __init__(self, clients: Clients, number: int) -> None:
        self._clients = clients
        self._name = f"x{number}"
        self._is_newer = number % 2 == 0
        self._count = 0
        self.ended: list[tuple[Outcome, list[bytes]]] = []

    def count(self, outcome: Outcome) -> int:
        """Return how many transactions had this outcome."""
        return sum(ended == outcome for ended, _ in self.ended)

    async def work(self) -> None:
        """Run one transaction after the other until it must stop; then none is left open."""
        while not await self._work_on_one_line():
            await self._clients.rest()

    async def _work_on_one_line(self) -> bool:
        """Return whether the work is done; it is not if the producer must start over."""
        clients = self._clients
        line = await clients.connect()
        producer = Transactor(line, self._name, is_newer=self._is_newer)
        try:
            # This ends a transaction that was left open.
            if not clients.note("init", (await producer.init()).error_code):
                return False
            while not clients.stopping.is_set():
                if not await self._run(producer):
                    return False
            return True
        except Unavailable:
            clients.codes["transaction unavailable"] += 1
            return False
        finally:
            line.upstream.close()

    async def _run(self, producer: Transactor) -> bool:
        """Run one transaction; return whether the producer can begin another."""
        self._count += 1
        chance = self._clients.chance
        written: list[bytes] = []
        # Until it is known to be committed or aborted, either is right.
        self.ended.append(("unknown", written))
        is_whole = True
        for partition in chance.sample(range(PARTITIONS), chance.randint(1, PARTITIONS)):
            value = f"{self._name}-{self._count}-{partition}".encode()
            written.append(value)
            is_whole = is_whole and await self._write(producer, value, partition)
        commit = is_whole and chance.random() < 0.7
        if not commit:
            # Nothing commits it later.
            self.ended[-1] = ("aborted", written)
        is_ended = await self._repeat("end", lambda: self._end(producer, commit=commit))
        if is_ended and commit:
            self.ended[-1] = ("committed", written)
        return is_ended

    async def _write(self, producer: Transactor, value: bytes, partition: int) -> bool:
        if not self._is_newer:

            async def add() -> ErrorCode:
                [code] = await producer.add("txn", partition)
                return code

            if not await self._repeat("add", add):
                return False
        return await self._repeat(
            "write", lambda: producer.write("txn", value, partition=partition)
        )

    async def _end(self, producer: Transactor, *, commit: bool) -> ErrorCode:
        return (await producer.end(commit=commit)).error_code

    async def _repeat(self, what: str, ask: Callable[[], Awaitable[ErrorCode]]) -> bool:
        """Ask until there is an answer that does not call for another try."""
        for _ in range(40):
            code = await ask()
            if self._clients.note(what, code):
                return True
            if code not in _AGAIN:
                return False
            await self._clients.rest()
        return False


_AGAIN: Final = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
