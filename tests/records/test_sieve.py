"""The sieve and its twin keep the same records, and raise the same errors."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import Corrupt
from rookery.records import _kernel, _sieve, batches
from rookery.records.batches import BatchHeader
from rookery.records.recordcodec import Record, payload, read
from rookery.records.twins import sievetwin
from tests.records.samples import outcome

SEED = bytes(range(16))
BOTH = pytest.mark.parametrize("module", [_sieve, sievetwin], ids=["compiled", "twin"])
KEYS = st.sampled_from([None, b"", b"a", b"aa", b"12345678", b"123456789", b"x" * 300])
RECORDS = st.lists(
    st.builds(
        Record,
        KEYS,
        st.none() | st.binary(max_size=20),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=5))).map(tuple),
        st.integers(-1, 2**62),
        st.just(-1),
    ),
    max_size=12,
)


def made(records: list[Record], base: int = 0, attributes: int = 0) -> tuple[bytes, BatchHeader]:
    body, count, delta, first, highest = _kernel.encode(records, base)
    header = BatchHeader(
        base, 0, 0, 2, 0, attributes, max(delta, 0), first, highest, -1, -1, -1, count
    )
    return body, header


def sifted(
    module: ModuleType, noted: list[list[Record]], records: list[Record], *, drops: bool
) -> tuple[int, int, int, bytes | None]:
    """Note consecutive batches, then sift one that comes before them all."""
    last = module.OffsetMap(1 << 16, SEED)
    body, header = made(records)
    base = len(records)
    for batch in noted:
        data, noted_header = made(batch, base)
        assert last.note(data, noted_header)
        base += len(batch)
    result: tuple[int, int, int, bytes | None] = last.sift(body, header, drops)
    return result


@given(st.lists(RECORDS, max_size=3), RECORDS, st.booleans())
def test_sieve_and_twin_agree_and_keep_records_without_a_later_key(
    noted: list[list[Record]], records: list[Record], drops: bool
) -> None:
    result = sifted(_sieve, noted, records, drops=drops)
    assert result == sifted(sievetwin, noted, records, drops=drops)
    later = {record.key for batch in noted for record in batch}
    kept = [
        record._replace(offset=offset)
        for offset, record in enumerate(records)
        if record.key is None
        or (record.key not in later and (record.value is not None or not drops))
    ]
    count, tombstones, highest, body = result
    assert count == len(kept)
    assert tombstones == sum(record.key is not None and record.value is None for record in kept)
    assert highest == max((record.timestamp for record in kept), default=-1)
    whole, header = made(records)
    assert (body is None) == (count == len(records))
    data = whole if body is None else body
    assert list(_kernel.decode(data, header._replace(record_count=count), Record)) == kept


@given(RECORDS, st.integers(-(2**40), 2**40))
def test_rebase_changes_the_base_timestamp_and_keeps_times(
    records: list[Record], shift: int
) -> None:
    body, header = made(records)
    moved = _sieve.rebase(body, len(records), shift)
    assert moved == sievetwin.rebase(body, len(records), shift)
    other = header._replace(base_timestamp=header.base_timestamp - shift)
    expected = list(_kernel.decode(body, header, Record))
    assert list(_kernel.decode(moved, other, Record)) == expected


@given(RECORDS, st.data())
def test_sieve_and_twin_agree_on_damage(records: list[Record], data: st.DataObject) -> None:
    body, header = made(records)
    broken = bytearray(body)
    for _ in range(data.draw(st.integers(0, 3))):
        if broken:
            at = data.draw(st.integers(0, len(broken) - 1))
            broken[at] = data.draw(st.integers(0, 255))
    del broken[data.draw(st.integers(0, len(broken))) :]
    delta = data.draw(st.integers(0, 15))
    count = data.draw(st.integers(0, 15))
    header = header._replace(last_offset_delta=delta, record_count=count)

    def notes(module: ModuleType) -> object:
        last = module.OffsetMap(1 << 16, SEED)
        return outcome(lambda: last.note(bytes(broken), header)), len(last)

    def sifts(module: ModuleType) -> object:
        last = module.OffsetMap(1 << 16, SEED)
        return outcome(lambda: last.sift(bytes(broken), header, False))

    assert notes(_sieve) == notes(sievetwin)
    assert sifts(_sieve) == sifts(sievetwin)
    assert outcome(lambda: _sieve.rebase(bytes(broken), count, 99)) == outcome(
        lambda: sievetwin.rebase(bytes(broken), count, 99)
    )


@BOTH
def test_damaged_batch_adds_nothing_to_the_map(module: ModuleType) -> None:
    body, header = made([Record(b"a", b""), Record(b"b", b"")])
    last = module.OffsetMap(1 << 16, SEED)
    with pytest.raises(Corrupt, match="record 1"):
        last.note(body[:-1], header)
    assert len(last) == 0


@BOTH
def test_map_accepts_whole_batches_up_to_its_capacity(module: ModuleType) -> None:
    last = module.OffsetMap(100 * module.SLOT_BYTES, SEED)
    assert 80 <= last.capacity <= 110
    count = last.capacity
    body, header = made([Record(b"%d" % n, b"") for n in range(count + 1)])
    assert not last.note(body, header)
    assert len(last) == 0
    body, header = made([Record(b"%d" % n, b"") for n in range(count)])
    assert last.note(body, header)
    assert len(last) == count
    again, header = made([Record(b"0", b"")], base=count)
    assert not last.note(again, header)  # it counts records, not new keys
    assert (
        last.sift(body, made([Record(b"%d" % n, b"") for n in range(count)])[1], False)[0] == count
    )


@BOTH
def test_append_time_is_the_time_of_every_record(module: ModuleType) -> None:
    body, header = made([Record(b"a", b"", (), 5)], attributes=batches.LOG_APPEND_TIME)
    last = module.OffsetMap(1 << 16, SEED)
    assert last.sift(body, header._replace(max_timestamp=77), False)[2] == 77


@BOTH
def test_seed_must_have_its_size(module: ModuleType) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        module.OffsetMap(100, b"short")


def test_digests_distribute_keys_of_every_length() -> None:
    last = _sieve.OffsetMap(1 << 20, SEED)
    keys = [bytes([n]) * size for size in range(1, 40) for n in range(200)]
    body, header = made([Record(key, b"") for key in [b"", *keys, *(k + b"\0" for k in keys)]])
    assert last.note(body, header)
    assert len(last) == len({b"", *keys, *(k + b"\0" for k in keys)})


def test_sieve_reads_the_payload_of_a_batch() -> None:
    data, header = made([Record(b"a", b"1", (), 5), Record(b"a", b"2", (), 6)])
    whole = batches.seal(header, data) + data
    parsed = batches.parse(whole)
    last = _sieve.OffsetMap(1 << 16, SEED)
    assert last.note(payload(whole, parsed), parsed)
    count, _, highest, rest = last.sift(payload(whole, parsed), parsed, False)
    assert (count, highest) == (1, 6)
    assert rest is not None
    new = header._replace(record_count=1)
    [left] = read(batches.seal(new, rest) + rest, batches.parse(batches.seal(new, rest) + rest))
    assert left == Record(b"a", b"2", (), 6, 1)
