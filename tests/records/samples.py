"""Generated batches from a seed, whole and damaged, to compare the kernel with its twin."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice

from rookery.records import _kernel, batches, kernel
from rookery.records.batches import BatchHeader
from rookery.records.compression import CODECS
from rookery.records.recordcodec import BatchSettings, Record, build
from rookery.records.twins import kerneltwin

RULES = [
    sum(1 << codec for codec in CODECS) << kernel.CODECS_SHIFT | flags
    for flags in (0, kernel.FROM_PRODUCER, kernel.CHECK_CRC, kernel.CHECK_RECORDS)
]
EXTREMES = (
    *(-(2**63), -(2**31), -(2**15), -2, -1, 0, 1, 2, 7),
    *(2**15 - 1, 2**31 - 2, 2**31 - 1, 2**63 - 1),
)
WIDTHS = {
    "base_offset": 63,
    "attributes": 15,
    "last_offset_delta": 31,
    "base_timestamp": 63,
    "max_timestamp": 63,
    "producer_id": 63,
    "producer_epoch": 15,
    "base_sequence": 31,
    "record_count": 31,
}


def outcome(function: Callable[[], object]) -> tuple[str, object]:
    """Run something: its result, or its error's class and text."""
    try:
        return "value", function()
    except Exception as error:  # noqa: BLE001 (any class at all must be the same in both)
        return type(error).__name__, str(error)


def blob(rng: random.Random) -> bytes | None:
    if rng.random() < 0.15:
        return None
    # Lengths on both sides of where their varint grows a byte.
    return rng.randbytes(rng.choice((0, 1, 3, 8, 20, 63, 64, 65, 200)))


def record(rng: random.Random) -> Record:
    headers = tuple(
        (rng.choice(("", "h", "schlüssel", "\udcff")), blob(rng)) for _ in range(rng.randrange(3))
    )
    timestamp = rng.choice((1_700_000_000_000 + rng.randrange(10**6), rng.randrange(3)))
    return Record(blob(rng), blob(rng), headers, timestamp)


def batch(rng: random.Random) -> bytes:
    """Make a batch that a producer could have sent."""
    has_id = rng.random() < 0.5
    settings = BatchSettings(
        producer_id=rng.randrange(2**40) if has_id else -1,
        producer_epoch=rng.randrange(2**15) if has_id else -1,
        base_sequence=rng.randrange(2**31) if has_id else -1,
        is_transactional=has_id and rng.random() < 0.5,
    )
    return build([record(rng) for _ in range(rng.randrange(1, 6))], settings)


def resealed(data: bytes) -> bytes:
    """Make the length and the CRC of a broken batch right, so that deeper checks are reached."""
    body = data[batches.HEADER_SIZE :]
    header = BatchHeader._make((*batches.FIELDS.unpack_from(data), 0))
    return batches.seal(header, body) + body


def _flip(rng: random.Random, data: bytearray) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set(rng: random.Random, data: bytearray) -> None:
    data[rng.randrange(len(data))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF))


def _cut(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data)) :]


def _drop(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data))]


def _insert(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    data[at:at] = rng.choice((b"\x00", b"\xff" * 5, b"\xff" * 10, rng.randbytes(3)))


def _field(rng: random.Random, data: bytearray) -> None:
    name, bits = rng.choice(list(WIDTHS.items()))
    value = rng.choice([n for n in EXTREMES if -(2**bits) <= n < 2**bits])
    header = BatchHeader._make((*batches.FIELDS.unpack_from(data), 0))
    data[: batches.HEADER_SIZE] = header._replace(**{name: value}).pack()


MUTATIONS = (_flip, _set, _cut, _drop, _insert, _field)


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Break a batch in one to three places; half of the time its CRC is made right again."""
    broken = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        if len(broken) > batches.HEADER_SIZE:
            rng.choice(MUTATIONS)(rng, broken)
    if len(broken) >= batches.HEADER_SIZE and rng.random() < 0.5:
        return resealed(bytes(broken))
    return bytes(broken)


def cases(seed: int) -> Iterator[bytes]:
    """Yield batches without end: one whole, then many that are broken, then two in a row."""
    rng = random.Random(seed)
    while True:
        whole = batch(rng)
        yield whole
        for _ in range(20):
            yield mutated(rng, whole)
        yield whole + mutated(rng, batch(rng))


def check_reading(data: bytes, rules: int) -> None:
    """Compare kernel and twin on one case: headers, then the records of what passed."""
    compiled, twin = (
        outcome(lambda: _kernel.scan(data, rules)),
        outcome(lambda: kerneltwin.scan(data, rules)),
    )
    assert compiled == twin, (data.hex(), rules)
    for row in _kernel.scan(data, rules)[0]:
        check_records(data, BatchHeader._make(row))


def check_records(data: bytes, header: BatchHeader) -> None:
    body = memoryview(data)[header.position + batches.HEADER_SIZE : header.end]
    compiled, twin = (
        outcome(lambda: _kernel.walk(body, header)),
        outcome(lambda: kerneltwin.walk(body, header)),
    )
    assert compiled == twin, (data.hex(), header)
    compiled = outcome(lambda: list(_kernel.decode(body, header, Record)))
    twin = outcome(lambda: list(kerneltwin.decode(body, header, Record)))
    assert compiled == twin, (data.hex(), header)


def wild_record(rng: random.Random) -> Record:
    """Make a record whose offset or timestamp may be anything."""
    plain = record(rng)
    if rng.random() < 0.3:
        plain = plain._replace(timestamp=rng.choice(EXTREMES))
    if rng.random() < 0.2:
        plain = plain._replace(offset=rng.choice((*EXTREMES, rng.randrange(20))))
    return plain


def check_writing(rng: random.Random) -> None:
    """Compare kernel and twin on records to write, sensible or not."""
    records = [wild_record(rng) for _ in range(rng.randrange(4))]
    base = rng.choice((0, 0, 5, 2**62))
    compiled = outcome(lambda: _kernel.encode(records, base))
    assert compiled == outcome(lambda: kerneltwin.encode(records, base)), (records, base)


def check_many(count: int, seed: int) -> int:
    """Compare kernel and twin on a given number of cases; every tenth is about writing."""
    rng = random.Random(seed)
    for index, data in enumerate(islice(cases(seed), count)):
        if index % 10 == 9:
            check_writing(rng)
        else:
            check_reading(data, RULES[index % len(RULES)])
    return count
