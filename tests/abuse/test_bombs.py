"""Record batches that expand far beyond their size, or claim to."""

from __future__ import annotations

import gzip
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest
from kio.schema.errors import ErrorCode

from tests.abuse import batches
from tests.abuse.batches import GOOD, GZIP, LZ4, MEBIBYTE, NONE, SNAPPY, ZSTD, batch, record
from tests.abuse.targets import ADMITTED, Target
from tests.abuse.topics import code_of_list_offsets, end_offset, make_topic, produce
from tests.abuse.victims import Victim

pytestmark = ADMITTED

GIBIBYTE = 1024 * MEBIBYTE
# What a batch is refused with that cannot be read, or is too large.
REFUSED = {
    ErrorCode.invalid_record,
    ErrorCode.corrupt_message,
    ErrorCode.message_too_large,
    ErrorCode.unsupported_compression_type,
}
# Topics that make the broker look at the records, and the one that does not.
PLAIN = "bomb-plain"
LOOKS = {
    "bomb-compact": {"cleanup_policy": "compact"},
    "bomb-zstd": {"compression_type": "zstd"},
    "bomb-none": {"compression_type": "uncompressed"},
    "bomb-before": {"message_timestamp_before_max_ms": "9000000000000"},
    "bomb-checked": {"rookery_validate_compressed": "true"},
}
# What a batch may become while it is looked at for a time: 128 MiB, and what it is read from.
OPEN_BYTES = 192 * MEBIBYTE
KEPT_BYTES = 64 * MEBIBYTE
MAX_TIMESTAMP = -3
CODECS = {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}


@pytest.fixture(autouse=True)
def topics(target: Target) -> None:
    make_topics(target.victim)


@cache
def make_topics(victim: Victim) -> None:
    make_topic(victim.owner, PLAIN, max_message_bytes="20000000")
    for name, configs in LOOKS.items():
        make_topic(victim.owner, name, max_message_bytes="20000000", **configs)


@cache
def bomb(codec: str) -> bytes:
    """Return a batch that becomes a gibibyte or more; snappy cannot pack as well as the others."""
    match codec:
        case "gzip":
            body = batches.gzip_bomb(GIBIBYTE)
        case "zstd":
            body = batches.zstd_bomb(32 * GIBIBYTE)
        case "lz4":
            body = batches.lz4_bomb(2 * GIBIBYTE)
        case _:
            body = batches.snappy_bomb(256 * MEBIBYTE)
    return batch(body, codec=CODECS[codec])


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("topic", LOOKS)
def test_decompression_bomb_is_refused_by_topics_that_inspect_records(
    target: Target, codec: str, topic: str
) -> None:
    assert produce(target.door, topic, bomb(codec)) in REFUSED


@pytest.mark.parametrize("codec", CODECS)
def test_decompression_bomb_is_not_expanded_by_topics_that_do_not_inspect_records(
    target: Target, codec: str
) -> None:
    before = target.victim.forget_peak()

    assert produce(target.door, PLAIN, bomb(codec)) in {ErrorCode.none, *REFUSED}

    assert target.victim.peak() - before < KEPT_BYTES


@pytest.mark.parametrize("time_ms", [0, MAX_TIMESTAMP])
@pytest.mark.parametrize("codec", CODECS)
def test_lookup_by_time_does_not_expand_a_decompression_bomb(
    target: Target, codec: str, time_ms: int
) -> None:
    topic = f"bomb-stored-{codec}"
    make_topic(target.door, topic, max_message_bytes="20000000")
    produce(target.door, topic, bomb(codec))
    before = target.victim.forget_peak()

    code = code_of_list_offsets(target.door, topic, time_ms)

    assert code is not ErrorCode.unknown_server_error
    assert target.victim.peak() - before < OPEN_BYTES
    assert target.victim.resident() - before < KEPT_BYTES


@pytest.mark.parametrize("codec", CODECS)
def test_memory_is_released_after_decompression_bombs(target: Target, codec: str) -> None:
    """Threads must not each keep what they needed for their largest one."""
    for name in LOOKS:
        produce(target.door, name, bomb(codec))
    before = target.victim.resident()
    for name in LOOKS:
        produce(target.door, name, bomb(codec))

    assert target.victim.resident() - before < 16 * MEBIBYTE


@pytest.mark.parametrize("codec", CODECS)
def test_concurrent_decompression_bombs_are_expanded_one_at_a_time(
    target: Target, codec: str
) -> None:
    before = target.victim.forget_peak()
    names = [*LOOKS, *LOOKS]

    with ThreadPoolExecutor(len(names)) as pool:
        codes = pool.map(lambda name: produce(target.door, name, bomb(codec)), names)

        assert set(codes) <= REFUSED
    assert target.victim.resident() - before < KEPT_BYTES
    # The requests are in memory together, and one of them is open: in pieces, then whole.
    assert target.victim.peak() - before < len(names) * len(bomb(codec)) + 2 * KEPT_BYTES


@pytest.mark.parametrize("lie", batches.SNAPPY_LIES)
@pytest.mark.parametrize("topic", LOOKS)
def test_snappy_with_false_lengths_is_refused(target: Target, lie: str, topic: str) -> None:
    body = batches.SNAPPY_LIES[lie]

    assert produce(target.door, topic, batch(body, codec=SNAPPY)) in REFUSED


@pytest.mark.parametrize("exponent", [20, 21, 31])
def test_a_huge_window_of_zstd_is_refused(target: Target, exponent: int) -> None:
    records = batch(batches.zstd_window(exponent), codec=ZSTD)

    assert produce(target.door, "bomb-compact", records) in REFUSED


@pytest.mark.parametrize("codec", range(5, 8))
@pytest.mark.parametrize("topic", [PLAIN, "bomb-compact"])
def test_an_unknown_codec_is_refused(target: Target, codec: int, topic: str) -> None:
    assert produce(target.door, topic, batch(b"junk", codec=codec)) in REFUSED


@pytest.mark.parametrize("topic", [PLAIN, *LOOKS])
@pytest.mark.parametrize("count", [2**31 - 1, -1, 0, 2, 10**7])
def test_batch_with_a_wrong_record_count_is_refused(target: Target, topic: str, count: int) -> None:
    records = batch(record(), count=count, last=max(count - 1, 0))

    assert produce(target.door, topic, records) in REFUSED


# What Kafka 4.3.1 was seen to refuse on a topic of default settings: no client could read it again.
@pytest.mark.parametrize("topic", [PLAIN, *LOOKS])
def test_a_count_that_contradicts_the_last_offset_is_refused(target: Target, topic: str) -> None:
    for count, last in ((1, 2**31 - 1), (2**31 - 1, 0), (1, -1), (1, 5)):
        assert produce(target.door, topic, batch(record(), count=count, last=last)) in REFUSED


@pytest.mark.parametrize("topic", [PLAIN, *LOOKS])
@pytest.mark.parametrize("count", [2**31 - 1, -1, 1, 10**7])
def test_headers_announced_but_missing_are_refused(target: Target, topic: str, count: int) -> None:
    assert produce(target.door, topic, batch(record(count=count))) in REFUSED


@pytest.mark.parametrize("topic", [PLAIN, *LOOKS])
def test_million_headers_take_bounded_memory(target: Target, topic: str) -> None:
    before = target.victim.resident()
    for body, codec in (
        (batches.MILLION_HEADERS_PACKED, GZIP),
        (batches.MILLION_HEADERS, NONE),
    ):
        code = produce(target.door, topic, batch(body, codec=codec))

        assert code in {ErrorCode.none, *REFUSED}
    assert target.victim.resident() - before < 32 * MEBIBYTE


@pytest.mark.parametrize("topic", [PLAIN, *LOOKS])
def test_wrong_record_lengths_are_refused(target: Target, topic: str) -> None:
    for size in (-1, 0, 2**31 - 1, -(2**31), 2**62):
        body = batches.zigzag(size) + record()[1:]

        assert produce(target.door, topic, batch(body)) in REFUSED, size


# Batches that no reader can decode, each with whether that shows without decompressing it.
UNREADABLE = {
    "zeros": (batch(bytes(40)), True),
    "noise": (batch(bytes(range(7, 200))), True),
    "a record and half of one": (batch(record() + record()[:4], count=2), True),
    "a record too few": (batch(record() * 2), True),
    "an offset twice": (batch(record() * 2, count=2), True),
    "no gzip": (batch(record() * 4, codec=GZIP), True),
    "no snappy": (batch(b"\xff" * 40, codec=SNAPPY), True),
    "no lz4": (batch(record() * 4, codec=LZ4), True),
    "no zstd": (batch(record() * 4, codec=ZSTD), True),
    "gzip of zeros": (batch(gzip.compress(bytes(40)), codec=GZIP), False),
    "gzip cut off": (batch(gzip.compress(record() * 4)[:-9], codec=GZIP), False),
    "lz4 and nothing": (batch(b"\x04\x22\x4d\x18", codec=LZ4), False),
    "zstd and noise": (batch(b"\x28\xb5\x2f\xfd" + b"\xff" * 9, codec=ZSTD), False),
}


@pytest.mark.parametrize("name", UNREADABLE)
@pytest.mark.parametrize("topic", [PLAIN, "bomb-checked", "bomb-compact"])
def test_unreadable_records_are_refused_and_not_stored(
    target: Target, topic: str, name: str
) -> None:
    records, is_told_closed = UNREADABLE[name]
    end = end_offset(target.door, topic)

    code = produce(target.door, topic, records)

    if topic == PLAIN and not is_told_closed:
        assert code is ErrorCode.none
        return
    assert code in {ErrorCode.invalid_record, ErrorCode.corrupt_message}
    assert end_offset(target.door, topic) == end


def test_batch_truncated_at_any_byte_is_refused(target: Target) -> None:
    for topic in (PLAIN, "bomb-compact"):
        for cut in range(len(GOOD)):
            assert produce(target.door, topic, GOOD[:cut]) in REFUSED, cut
