"""Changed records in a batch that otherwise stays the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import ApiError, ErrorCode
from rookery.model.control import ControlRecordType
from rookery.records import batches, recordcodec
from rookery.records.compression import CODECS, GZIP, NONE, Codec
from rookery.records.recordcodec import BatchSettings, Record
from rookery.records.recordedit import edit

RECORDS = st.lists(
    st.builds(
        Record,
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=50),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(
            tuple
        ),
        st.integers(0, 2**40),
        st.just(-1),
    ),
    min_size=1,
    max_size=8,
)


def reverse(records: Iterator[Record]) -> Iterable[Record]:
    return [
        record._replace(value=record.value[::-1] if record.value is not None else None)
        for record in records
    ]


@given(
    records=RECORDS,
    codec=st.sampled_from(list(CODECS.values())),
    target=st.none() | st.sampled_from(list(CODECS.values())),
    base=st.integers(0, 2**40),
    sequence=st.integers(0, 2**31 - 1),
    spare=st.integers(0, 127),
)
def test_only_the_records_change(
    records: list[Record], codec: Codec, target: Codec | None, base: int, sequence: int, spare: int
) -> None:
    settings = BatchSettings(
        codec=codec,
        base_offset=base,
        producer_id=7,
        producer_epoch=3,
        base_sequence=sequence,
        is_transactional=True,
    )
    batch = recordcodec.build(records, settings)
    header = batches.parse(batch)
    # A gap after the last record, as compaction leaves it, and spare bits, as a proxy sets them.
    marked = header._replace(
        last_offset_delta=header.last_offset_delta + 5, attributes=header.attributes | spare << 8
    )
    batch = b"".join(batches.restamp(batch, marked))
    [header] = batches.verify(batch)
    before = list(recordcodec.read(batch, header))

    changed = edit(batch, header, reverse, target)

    [after] = batches.verify(changed)
    wanted = (target or codec).id
    assert after._replace(batch_length=0, crc=0) == header._replace(
        batch_length=0, crc=0, attributes=header.attributes & ~batches.CODEC_MASK | wanted
    )
    assert list(recordcodec.read(changed, after)) == list(reverse(iter(before)))


def test_times_of_the_broker_stay() -> None:
    batch = recordcodec.build([Record(None, b"ab", (), 5), Record(None, b"cd", (), 9)])
    stamped = b"".join(batches.restamp(batch, batches.parse(batch).with_append_time(1_000)))
    header = batches.parse(stamped)

    changed = edit(stamped, header, reverse)

    [after] = batches.verify(changed)
    records = list(recordcodec.read(changed, after))
    assert [(record.value, record.timestamp) for record in records] == [
        (b"ba", 1_000),
        (b"dc", 1_000),
    ]


def test_records_without_a_time_stay_so() -> None:
    batch = recordcodec.build([Record(None, b"ab"), Record(None, b"cd")])

    changed = edit(batch, batches.parse(batch), reverse)

    [after] = batches.verify(changed)
    assert [record.timestamp for record in recordcodec.read(changed, after)] == [-1, -1]


def test_control_batch_stays() -> None:
    batch = recordcodec.build_marker(
        ControlRecordType.COMMIT, 1, BatchSettings(producer_id=1, producer_epoch=0), 5
    )

    assert edit(batch, batches.parse(batch), reverse) == batch


def test_lost_record_is_an_error() -> None:
    batch = recordcodec.build([Record(None, b"a"), Record(None, b"b")])

    with pytest.raises(ValueError, match="2 records became 1"):
        edit(batch, batches.parse(batch), lambda records: list(records)[:1])


def test_compressed_bytes_cannot_become_more_than_the_limit() -> None:
    batch = recordcodec.build([Record(None, bytes(100_000))], BatchSettings(codec=GZIP))

    with pytest.raises(ApiError) as caught:
        edit(batch, batches.parse(batch), reverse, NONE, limit=10_000)

    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
