"""The checksum over the last record of every key: correct, with few reads."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

from rookery.jobs.proof import Proof, prove, prove_latest

SEED = 7
KEYS = 5_000
ROWS = 20_000


class Source:
    """Records, and how often they were read."""

    def __init__(self, rows: list[tuple[int, bytes | None, bytes | None]]) -> None:
        self.rows = rows
        self.reads = 0

    def __call__(self) -> Iterator[pa.RecordBatch]:
        self.reads += 1
        for start in range(0, len(self.rows), 1000):
            yield batch(self.rows[start : start + 1000])


def batch(rows: list[tuple[int, bytes | None, bytes | None]]) -> pa.RecordBatch:
    offsets, keys, values = zip(*rows, strict=True)
    return pa.record_batch(
        {
            "offset": pa.array(offsets, pa.int64()),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
    )


def some_rows() -> list[tuple[int, bytes | None, bytes | None]]:
    """Make records of many keys; some have none, and some delete theirs."""
    chance = random.Random(SEED)
    return [
        (
            offset,
            b"key %d" % chance.randrange(KEYS) if chance.random() < 0.9 else None,
            chance.randbytes(200) if chance.random() < 0.8 else None,
        )
        for offset in range(ROWS)
    ]


def expected(rows: list[tuple[int, bytes | None, bytes | None]]) -> Proof:
    """Compute the expected proof with a dictionary."""
    last = {key: row for row in rows if (key := row[1]) is not None}
    alive = [row for row in last.values() if row[2] is not None]
    kept = alive + [row for row in rows if row[1] is None]
    proof = prove([batch(kept)])
    return Proof(proof.rows, proof.checksum, exact_keys=len(alive))


@pytest.mark.parametrize("max_bytes", [1 << 28, 100_000, 20_000])
def test_proof_counts_the_last_record_of_every_key(max_bytes: int) -> None:
    source = Source(some_rows())

    assert prove_latest(source, max_bytes) == expected(source.rows)


def test_few_keys_are_read_once_whatever_the_record_size() -> None:
    rows: list[tuple[int, bytes | None, bytes | None]] = [
        (offset, b"key %d" % (offset % 100), bytes(1000)) for offset in range(ROWS)
    ]
    source = Source(rows)

    proof = prove_latest(source, 1_000_000)

    assert proof == expected(rows)
    assert (proof.rows, source.reads) == (100, 1)


def test_records_without_a_key_take_no_memory() -> None:
    rows: list[tuple[int, bytes | None, bytes | None]] = [
        (offset, None, b"value") for offset in range(ROWS)
    ]
    source = Source(rows)

    assert prove_latest(source, 10_000) == expected(rows)
    assert source.reads == 1
