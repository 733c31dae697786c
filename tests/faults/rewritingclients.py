"""Writers and readers of a log that is rewritten meanwhile; a ledger compares what they see."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count, islice
from typing import Final

from rookery.clock import SystemClock
from rookery.errors import ErrorCode
from rookery.model.offset import EARLIEST, LATEST
from rookery.records.compression import LZ4, NONE, ZSTD
from rookery.records.recordcodec import BatchSettings, Record, build
from tests.broker.offsets import delete, find
from tests.broker.raw import Raw
from tests.broker.txns import COMMITTED, CommittedRecords, Transactor, committed_records
from tests.faults.flaky import Clients
from tests.faults.ledger import Ledger, SentBatch

EVENTS, KEYED = "events", "keyed"
PARTITIONS: Final = 2
_KEYS: Final = 40
_LIMITS: Final = (1, 500, 5_000, 100_000, 1_000_000)
_LONGEST_OPEN_SECONDS: Final = 0.3
_LONGEST_PAUSE_SECONDS: Final = 2.0


def events(clients: Clients, name: str) -> Iterator[SentBatch]:
    """Make batches of records of very different sizes; no value repeats."""
    names = (b"%s-%d-" % (name.encode(), number) for number in count())
    while True:
        stamp = SystemClock().now_ms()
        records = [
            Record(None, name + b"z" * clients.chance.choice((0, 10, 300, 3_000)), (), stamp)
            for name in islice(names, clients.chance.randint(1, 5))
        ]
        yield SentBatch(EVENTS, clients.chance.randrange(PARTITIONS), records)


def keyed(clients: Clients, name: str) -> Iterator[SentBatch]:
    """Make single records of keys that no other writer has; some are tombstones."""
    for number in count():
        key = f"{name}-{clients.chance.randrange(_KEYS)}".encode()
        value = b"v%d-" % number + b"y" * clients.chance.choice((0, 50, 2_000))
        is_tombstone = clients.chance.random() < 0.15
        record = Record(key, None if is_tombstone else value, (), SystemClock().now_ms())
        yield SentBatch(KEYED, clients.chance.randrange(PARTITIONS), [record])


class PlainWriter:
    """Writes one batch after the other."""

    def __init__(self, clients: Clients, ledger: Ledger, source: Iterator[SentBatch]) -> None:
        self._clients = clients
        self._ledger = ledger
        self._source = source

    async def work(self) -> None:
        """Write until it must stop."""
        clients, line = self._clients, await self._clients.connect()
        while not clients.stopping.is_set():
            batch = next(self._source)
            self._ledger.begin(batch)
            codec = clients.chance.choice((NONE, LZ4, ZSTD))
            sent = build(batch.records, BatchSettings(codec=codec))
            answer = await line.produce(batch.topic, sent, partition=batch.partition)
            if clients.note("produce", answer.error_code):
                self._ledger.note_stored(batch, answer.base_offset)
            else:
                self._ledger.forget(batch)
            if clients.chance.random() < 0.2:
                await clients.rest()
        line.upstream.close()


class TransactionalWriter:
    """Commits most of its transactions and aborts the others; some stay open for a while."""

    def __init__(
        self,
        clients: Clients,
        ledger: Ledger,
        source: Iterator[SentBatch],
        *,
        name: str,
        is_newer: bool,
    ) -> None:
        self.committed = 0
        self._clients = clients
        self._ledger = ledger
        self._source = source
        self._name = name
        self._is_newer = is_newer

    async def work(self) -> None:
        """Run transactions until it must stop; then none is open."""
        clients, line = self._clients, await self._clients.connect()
        producer = Transactor(line, self._name, is_newer=self._is_newer)
        while not clients.note("init", (await producer.init()).error_code):
            await clients.rest()
        while not clients.stopping.is_set():
            if not await self._run(producer):
                # This ends the transaction, whatever its result was.
                while not clients.note("init", (await producer.init()).error_code):
                    await clients.rest()
        line.upstream.close()

    async def _run(self, producer: Transactor) -> bool:
        """Run a transaction; return whether its outcome is known."""
        clients, ledger = self._clients, self._ledger
        batches = [next(self._source) for _ in range(clients.chance.randint(1, 3))]
        offsets: list[int] = []
        for batch in batches:
            ledger.begin(batch)
            offset = await self._write(producer, batch)
            if offset is None:
                break
            ledger.hide(batch, offset)
            offsets.append(offset)
        if clients.chance.random() < 0.3:
            await asyncio.sleep(clients.chance.uniform(0, _LONGEST_OPEN_SECONDS))
        if len(offsets) < len(batches) or clients.chance.random() < 0.4:
            for batch in batches:
                ledger.note_aborted(batch)
            return await self._end(producer, commit=False)
        for batch, offset in zip(batches, offsets, strict=True):
            ledger.reveal(batch, offset)
        if not await self._end(producer, commit=True):
            for batch in batches:
                ledger.forget(batch)
            return False
        for batch, offset in zip(batches, offsets, strict=True):
            ledger.note_stored(batch, offset)
        self.committed += 1
        return True

    async def _end(self, producer: Transactor, *, commit: bool) -> bool:
        return self._clients.note("end", (await producer.end(commit=commit)).error_code)

    async def _write(self, producer: Transactor, batch: SentBatch) -> int | None:
        """Write a batch; return its offset if it is acknowledged."""
        clients = self._clients
        if not self._is_newer:
            [code] = await producer.add(batch.topic, batch.partition)
            if not clients.note("add", code):
                return None
        answer = await producer.produce(batch.topic, batch.records, partition=batch.partition)
        return answer.base_offset if clients.note("write", answer.error_code) else None


class CommittedReader:
    """Reads committed records on one connection, with any limit, and has the ledger compare."""

    def __init__(self, clients: Clients, ledger: Ledger, line: Raw) -> None:
        self._clients = clients
        self._ledger = ledger
        self._line = line

    async def bounds(self, topic: str, partition: int) -> range:
        """Return the offsets from the start of the log to the last stable one."""
        [first, end] = await find(
            self._line, topic, EARLIEST, LATEST, partition=partition, isolation_level=COMMITTED
        )
        return range(first.offset, end.offset)

    async def read(self, topic: str, partition: int, offset: int) -> CommittedRecords | None:
        """Read from an offset on; None if the records there were deleted."""
        answer = await self._line.fetch(
            topic,
            offset,
            partition=partition,
            isolation_level=COMMITTED,
            partition_max_bytes=self._clients.chance.choice(_LIMITS),
        )
        if answer.error_code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return None
        read = committed_records(answer, offset)
        self._ledger.note_read(topic, partition, read.records)
        return read

    async def read_until(self, topic: str, partition: int, offsets: range) -> list[Record] | None:
        """Read all records of a range that is below the last stable offset; None as above."""
        records: list[Record] = []
        offset = offsets.start
        while offset < offsets.stop:
            read = await self.read(topic, partition, offset)
            if read is None:
                return None
            place = f"{topic}-{partition} at {offset}, below {offsets.stop}"
            assert read.next_offset > offset, f"a reader is stuck: {place}"
            records += read.records
            offset = read.next_offset
        return records


class RandomReader:
    """Reads repeatedly, each time for a while from a random offset."""

    def __init__(
        self, clients: Clients, ledger: Ledger, topic: str, *, is_deleted: bool = False
    ) -> None:
        """Prepare.

        Args:
            clients: all clients of the run.
            ledger: compares what is read.
            topic: what to read.
            is_deleted: whether records below an offset may be deleted at any time.
        """
        self._clients = clients
        self._ledger = ledger
        self._topic = topic
        self._is_deleted = is_deleted

    async def work(self) -> None:
        """Read until it must stop."""
        clients, line = self._clients, await self._clients.connect()
        reader = CommittedReader(clients, self._ledger, line)
        while not clients.stopping.is_set():
            partition = clients.chance.randrange(PARTITIONS)
            bounds = await reader.bounds(self._topic, partition)
            if not bounds:
                await clients.rest()
                continue
            first = clients.chance.choice(bounds)
            part = range(first, min(bounds.stop, first + clients.chance.randint(1, 1_000)))
            records = await reader.read_until(self._topic, partition, part)
            assert records is not None or self._is_deleted
        line.upstream.close()


class KeyReader:
    """Reads a compacted partition repeatedly from its start, and misses no key."""

    def __init__(self, clients: Clients, ledger: Ledger) -> None:
        self.passes = 0
        self._clients = clients
        self._ledger = ledger

    async def work(self) -> None:
        """Read until it must stop."""
        clients, line = self._clients, await self._clients.connect()
        reader = CommittedReader(clients, self._ledger, line)
        while not clients.stopping.is_set():
            partition = clients.chance.randrange(PARTITIONS)
            last = self._ledger.last_records(KEYED, partition)
            # Compaction may remove a tombstone between two reads of a slow pass.
            expected = {key: record for key, record in last.items() if record.value is not None}
            newest = max((record.offset for record in expected.values()), default=-1)
            bounds = await reader.bounds(KEYED, partition)
            if newest not in bounds:
                # It follows an open transaction, or this broker does not know it yet.
                await clients.rest()
                continue
            found = await reader.read_until(KEYED, partition, bounds)
            assert found is not None
            self._ledger.check_last(KEYED, partition, expected, found)
            self.passes += 1
        line.upstream.close()


class RecordDeleter:
    """Deletes the beginning of a partition at times."""

    def __init__(self, clients: Clients, ledger: Ledger) -> None:
        self._clients = clients
        self._ledger = ledger

    async def work(self) -> None:
        """Delete until it must stop."""
        clients, line = self._clients, await self._clients.connect()
        reader = CommittedReader(clients, self._ledger, line)
        while not clients.stopping.is_set():
            await asyncio.sleep(clients.chance.uniform(0, _LONGEST_PAUSE_SECONDS))
            bounds = await reader.bounds(EVENTS, 0)
            offset = clients.chance.choice(bounds) if bounds else bounds.start
            code, _ = await delete(line, EVENTS, offset)
            clients.note("delete", code)
        line.upstream.close()
