"""How fast are batches checked, stamped, read and written, and how much of it is the CRC?

Run `python bench/records.py`. CPU time, the median of several rounds; the peers run in the same
process on the same bytes. A ratio above 1 means that we are faster.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiokafka.record import (
    default_records as aio,
)
from kafka.record.default_records import (
    DefaultRecordBatch,
    DefaultRecordBatchBuilder,
)

from rookery.records import batches, crc, kernel
from rookery.records.compression import GZIP, LZ4, SNAPPY, ZSTD, Codec
from rookery.records.recordcodec import BatchSettings, Record, build, inspect, payload, read
from rookery.records.twins import kerneltwin

ROUNDS = 9
# What a broker spends on a Produce of 16 KB in all, measured with a whole small broker.
PRODUCE_16K_US = 47.0
GOAL_PERCENT = 10.0

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Question:
    """One row of a table: what is done, how often a call does it, and who does it."""

    name: str
    per_call: int
    ours: Work
    others: dict[str, Work]


def nanoseconds(work: Work) -> float:
    """Tell the CPU time of one call, the median of several rounds."""
    work()
    calls, spent = 1, 0
    while spent < 4_000_000:
        calls *= 2
        spent = _spent(work, calls)
    return statistics.median(_spent(work, calls) for _ in range(ROUNDS)) / calls


def _spent(work: Work, calls: int) -> int:
    begin = time.process_time_ns()
    for _ in range(calls):
        work()
    return time.process_time_ns() - begin


def sample(count: int, size: int) -> list[Record]:
    """Make records of that size with a key and a time, as a log has them."""
    rng = random.Random(1)
    return [
        Record(b"key-%06d" % n, rng.randbytes(size), (), 1_700_000_000_000 + n, n)
        for n in range(count)
    ]


def built(builder: Any, records: list[Record]) -> bytes:
    """Write a batch with a peer's builder."""
    for key, value, _, timestamp, offset in records:
        builder.append(offset, timestamp, key, value, [])
    return bytes(builder.build())


def everything(batch: Any) -> list[tuple[object, ...]]:
    """Read a peer's batch, touching every field."""
    return [(r.key, r.value, r.headers, r.timestamp, r.offset) for r in batch]


def stamped_plainly(data: bytes) -> bytearray:
    """Give a batch a producer id the plain way: copy it and compute its CRC again."""
    copy = bytearray(data)
    copy[43:51] = (77).to_bytes(8, "big")
    copy[17:21] = crc.checksum(memoryview(copy)[21:]).to_bytes(4, "big")
    return copy


def per_record(records: list[Record]) -> list[Question]:
    """Ask about work that grows with the number of records."""
    data = build(records)
    header = batches.parse(data)
    body = payload(data, header)
    count = len(records)
    args = (2, 0, 0, -1, -1, -1, 1 << 21)
    return [
        Question(
            "read records",
            count,
            lambda: list(read(data, header)),
            {
                "our Python twin": lambda: list(kerneltwin.decode(body, header, Record)),
                "kafka-python": lambda: everything(DefaultRecordBatch(data)),
                "aiokafka C": lambda: everything(aio.DefaultRecordBatch(data)),
                "aiokafka Python": lambda: everything(aio._DefaultRecordBatchPy(data)),
            },
        ),
        Question(
            "check records",
            count,
            lambda: inspect(data, header),
            {"our Python twin": lambda: kerneltwin.walk(body, header)},
        ),
        Question(
            "write records",
            count,
            lambda: build(records),
            {
                "our Python twin": lambda: kerneltwin.encode(records, 0),
                "kafka-python": lambda: built(DefaultRecordBatchBuilder(*args), records),
                "aiokafka C": lambda: built(aio.DefaultRecordBatchBuilder(*args), records),
                "aiokafka Python": lambda: built(aio._DefaultRecordBatchBuilderPy(*args), records),
            },
        ),
    ]


def per_batch(data: bytes) -> list[Question]:
    """Ask about work that is done once for a batch."""
    header = batches.parse(data)
    other = header._replace(producer_id=77)
    covered = memoryview(data)[21:]
    return [
        Question("CRC-32C", 1, lambda: crc.checksum(covered), {}),
        Question(
            "validate (header, rules, CRC)",
            1,
            lambda: batches.validate(data),
            {
                "kafka-python": lambda: DefaultRecordBatch(data).validate_crc(),
                "aiokafka C": lambda: aio.DefaultRecordBatch(data).validate_crc(),
                "aiokafka Python": lambda: aio._DefaultRecordBatchPy(data).validate_crc(),
            },
        ),
        Question("stamp offset and epoch", 1, lambda: batches.stamp(data, 123, 4), {}),
        Question(
            "stamp producer id (CRC patched)",
            1,
            lambda: batches.restamp(data, other),
            {"copy, CRC anew": lambda: stamped_plainly(data)},
        ),
    ]


def compressed_questions(codec: Codec) -> list[Question]:
    """Ask what a produce checks of a compressed batch: its bounds, or all its records."""
    data = build(log_lines(150), BatchSettings(codec=codec))
    header = batches.parse(data)

    def checked() -> None:
        batches.validate(data)
        inspect(data, header)

    return [
        Question(
            f"{codec.name}: bounds",
            1,
            lambda: batches.validate(data),
            {"and every record": checked},
        )
    ]


def log_lines(count: int) -> list[Record]:
    """Make records that compress about as well as lines of a log do."""
    rng = random.Random(2)
    words = ["error", "payment", "timeout", "user", "order", "accepted", "retry", "warehouse"]
    return [
        Record(
            b"key-%06d" % n,
            " ".join([f"{rng.getrandbits(32):08x}", *rng.choices(words, k=11)]).encode(),
            (),
            1_700_000_000_000 + n,
            n,
        )
        for n in range(count)
    ]


def show(title: str, questions: list[Question]) -> dict[str, float]:
    """Print a table, and give back our own figures."""
    print(f"\n{title}")
    mine = {}
    for question in questions:
        ours = mine[question.name] = nanoseconds(question.ours) / question.per_call
        print(f"  {question.name:34}{ours:10.0f} ns")
        for name, work in question.others.items():
            theirs = nanoseconds(work) / question.per_call
            print(f"    {name:32}{theirs:10.0f} ns {theirs / ours:8.1f}x")
    return mine


def show_crc_share(mine: dict[str, float]) -> None:
    """Print how much of a 16 KB Produce is the CRC."""
    names = ("validate (header, rules, CRC)", "stamp offset and epoch")
    path = sum(mine[name] for name in names)
    share = mine["CRC-32C"] / 1000 / PRODUCE_16K_US * 100
    print("\nCRC in the produce path of 16 KB")
    print(f"  validate + stamp: {path / 1000:.2f} us, of which CRC {mine['CRC-32C'] / 1000:.2f} us")
    print(
        f"  of a Produce of {PRODUCE_16K_US:.0f} us: {share:.1f} % (at most {GOAL_PERCENT:.0f} %)"
    )


def main() -> None:
    """Print all tables."""
    print(f"kernel: {kernel.scan.__module__}")
    show("1 MB batch of 100 B records, for each record", per_record(sample(9000, 92)))
    mine = show("16 KB batch, for each batch", per_batch(build(sample(150, 92))))
    show("1 MB batch, for each batch", per_batch(build(sample(9000, 92))))
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        size = len(build(log_lines(150), BatchSettings(codec=codec)))
        show(f"150 log lines, {size} bytes compressed, for each batch", compressed_questions(codec))
    show_crc_share(mine)


if __name__ == "__main__":
    main()
