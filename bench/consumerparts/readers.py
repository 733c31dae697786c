"""One reader in a process of its own.

    python -m consumerparts.readers NAME BOOTSTRAP TOPIC ROWS [MEMORY]

Prints what it cost as JSON: rows, rows that came after a later one, seconds, CPU seconds, the
seconds until the first row, and by how many bytes the process grew. Everything is imported before
the time runs.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

MEBIBYTE = 1 << 20
MEMORY = 256 * MEBIBYTE
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")
# Without these librdkafka rests for a second whenever its queue is full.
TUNED = {
    "queued.min.messages": "1000000",
    "queued.max.messages.kbytes": "262144",
    "fetch.queue.backoff.ms": "10",
}
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
    ]
)
Batches = Iterator[pa.RecordBatch]


def rookery(bootstrap: str, topic: str, _rows: int, memory: int = MEMORY) -> Callable[[], Batches]:
    """Read in the order of time."""
    from rookery.consumer.api import read  # noqa: PLC0415 (only one of these is in a process)

    def run() -> Batches:
        yield from read(bootstrap, topic, columns=COLUMNS, memory=memory)

    return run


def keeping(bootstrap: str, topic: str, rows: int, memory: int = MEMORY) -> Callable[[], Batches]:
    """Read likewise, in a process that keeps freed memory, as our servers do (`mallopt`)."""
    from rookery.records import heap  # noqa: PLC0415

    heap.keep()
    return rookery(bootstrap, topic, rows, memory)


def kafkarrow(bootstrap: str, topic: str, rows: int) -> Callable[[], Batches]:
    """Read in the order of time, as kafkarrow understands it."""
    from kafkarrow import ConsumerManager, SourceTopic  # noqa: PLC0415

    def run() -> Batches:
        config = {"bootstrap.servers": bootstrap, "group.id": "bench", **TUNED}
        manager = ConsumerManager({**config}, [SourceTopic.from_earliest(topic)])
        left = rows
        while left > 0:
            batch = manager.poll(10)
            if batch.num_rows:
                left -= batch.num_rows
                yield batch

    return run


def confluent(bootstrap: str, topic: str, rows: int) -> Callable[[], Batches]:
    """Read in any order, into the same columns."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition  # noqa: PLC0415

    def run() -> Batches:
        config = {"bootstrap.servers": bootstrap, "group.id": "bench", **TUNED}
        consumer = Consumer({**config, "enable.auto.commit": "false"})
        known = consumer.list_topics(topic, 60).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in known])
        left = rows
        while left > 0:
            messages = consumer.consume(min(10_000, left), 1.0)
            if messages:
                left -= len(messages)
                yield _columns(messages)
        consumer.close()

    return run


def _columns(messages: list[Any]) -> pa.RecordBatch:
    columns = [
        [message.key() for message in messages],
        [message.value() for message in messages],
        [message.topic() for message in messages],
        [message.partition() for message in messages],
        [message.offset() for message in messages],
        [message.timestamp()[1] for message in messages],
    ]
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


READERS: dict[str, Callable[..., Callable[[], Batches]]] = {
    "rookery": rookery,
    "kafkarrow": kafkarrow,
    "confluent": confluent,
    "keeping": keeping,
}
PEERS = ("rookery", "kafkarrow", "confluent")
"""The readers that are compared if no others are named."""


def measure(run: Callable[[], Batches]) -> dict[str, float]:
    """Read everything; rows are looked at only for their times."""
    before = _memory("VmRSS")
    count = largest = late = 0
    latest = -1
    first: float | None = None
    began, cpu = time.perf_counter(), time.process_time()
    counting = 0.0
    for batch in run():
        if first is None:
            first = time.perf_counter() - began
        mark = time.process_time()
        count += batch.num_rows
        largest = max(largest, batch.nbytes)
        more, latest = _late(batch.column("timestamp"), latest)
        late += more
        counting += time.process_time() - mark
    return {
        "rows": count,
        "late": late,
        "seconds": time.perf_counter() - began,
        "cpu": time.process_time() - cpu - counting,
        "first": first or 0.0,
        "grown": _memory("VmHWM") - before,
        "largest": largest,
    }


def _late(times: pa.Array[Any], latest: int) -> tuple[int, int]:
    """Count the rows that are older than one before them; return also the latest time so far."""
    numbers = times.cast(pa.int64()).to_numpy(zero_copy_only=False)
    highest = np.maximum.accumulate(np.concatenate(([latest], numbers)))
    return int((numbers < highest[:-1]).sum()), int(highest[-1])


def _memory(name: str) -> int:
    """Return the system's figures of this process; `getrusage` would count the parent's, too."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if name in line]
    return int(line.split()[1]) * 1024


def main() -> None:
    """Measure one reader."""
    name, bootstrap, topic, rows = sys.argv[1:5]
    memory = [int(size) for size in sys.argv[5:]]  # only ours has such a setting
    run = READERS[name](bootstrap, topic, int(rows), *memory)
    pa.array([b"x"], pa.binary())  # imports pandas, if that is there, before the time runs
    gc.collect()  # what the imports have left is not a reader's
    print(json.dumps(measure(run)))


if __name__ == "__main__":
    main()
