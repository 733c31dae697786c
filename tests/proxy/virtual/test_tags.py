"""Tags are written into batches, read from the log, and removed on delivery."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import ApiError, Corrupt, ErrorCode
from rookery.model.virtual import MAX_SLOTS
from rookery.proxy.virtual.rules import UntaggedPolicy
from rookery.proxy.virtual.tags import (
    NO_SLOT,
    RESERVED_TAG,
    deliver_batch,
    read_slot,
    tag_batch,
)
from rookery.records import batches
from rookery.records.compression import CODECS
from rookery.records.recordcodec import BatchSettings, Record, build

REJECT, SLOT_0, QUARANTINE = UntaggedPolicy
IDEMPOTENT = BatchSettings(producer_id=7, producer_epoch=1, base_sequence=5)
TRANSACTIONAL = BatchSettings(
    producer_id=7, producer_epoch=1, base_sequence=0, is_transactional=True
)


def batch(settings: BatchSettings | None = None, count: int = 3) -> bytes:
    records = [Record(b"k", b"v%d" % number, timestamp=1000 + number) for number in range(count)]
    return build(records, settings or BatchSettings())


def stored(data: bytes, **changes: int) -> bytes:
    """Return a batch as another writer could have stored it."""
    header = batches.parse(data)
    return b"".join(batches.restamp(data, header._replace(**changes)))


settings = st.builds(
    BatchSettings,
    codec=st.sampled_from(list(CODECS.values())),
    producer_id=st.integers(0, 2**44 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
    base_sequence=st.integers(0, 2**31 - 1),
) | st.builds(BatchSettings, codec=st.sampled_from(list(CODECS.values())))


@given(settings, st.integers(0, MAX_SLOTS - 1), st.integers(0, 2**40), st.integers(1, 400))
def test_delivered_batches_equal_produced_ones(
    settings: BatchSettings, slot: int, offset: int, count: int
) -> None:
    data = batch(settings, count)

    tagged = b"".join(tag_batch(data, slot).records)
    [header] = batches.verify(tagged)
    delivered = deliver_batch(tagged, header, offset)

    assert read_slot(header, MAX_SLOTS, REJECT) == slot
    assert delivered[16:] == data[16:]
    assert batches.verify(delivered)[0].base_offset == offset


def test_one_producer_has_another_id_in_each_slot() -> None:
    ids = {tag_batch(batch(IDEMPOTENT), slot).header.producer_id for slot in range(MAX_SLOTS)}

    assert len(ids) == MAX_SLOTS
    assert min(ids) > 2**44
    assert max(ids) < 2**63


def test_batches_of_transactions_keep_their_producer_id_and_get_other_sequences() -> None:
    wrong = stored(batch(TRANSACTIONAL), max_timestamp=5)
    tagged = tag_batch(wrong, 2, is_transactional=True)

    assert tagged.header.max_timestamp == 1002
    [header] = batches.verify(b"".join(tagged.renumber(40)))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 40)
    assert read_slot(header, MAX_SLOTS, REJECT) == 2
    with pytest.raises(ApiError):
        tag_batch(batch(IDEMPOTENT), 2, is_transactional=True)


def test_untagged_batches_of_transactions_have_no_place_in_a_slot() -> None:
    header = batches.parse(batch(TRANSACTIONAL))

    assert read_slot(header, 4, QUARANTINE) == NO_SLOT
    with pytest.raises(Corrupt, match="did not pass the proxy"):
        read_slot(header, 4, SLOT_0)


def test_the_producer_id_is_enough() -> None:
    data = b"".join(tag_batch(batch(IDEMPOTENT), 3).records)
    cleared = stored(data, attributes=0)

    assert read_slot(batches.parse(cleared), 4, REJECT) == 3


def test_a_wrong_maximum_timestamp_is_corrected_where_a_broker_would_drop_the_tag() -> None:
    wrong = stored(batch(), max_timestamp=5)

    assert tag_batch(wrong, 0).header.max_timestamp == 1002


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (batch()[:-1], ErrorCode.INVALID_RECORD),
        (batch() + batch(), ErrorCode.INVALID_RECORD),
        (batch()[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
        (stored(batch(), attributes=0x100), ErrorCode.INVALID_RECORD),
        (stored(batch(), base_offset=1), ErrorCode.INVALID_RECORD),
        (stored(batch(IDEMPOTENT), producer_id=2**44), ErrorCode.INVALID_RECORD),
        (batch(TRANSACTIONAL), ErrorCode.INVALID_RECORD),
    ],
)
def test_batches_that_cannot_be_tagged_are_refused(data: bytes | None, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refused:
        tag_batch(data, 0)
    assert refused.value.code is code


@pytest.mark.parametrize(
    ("policy", "slot"), [(SLOT_0, 0), (QUARANTINE, NO_SLOT)], ids=["slot 0", "quarantine"]
)
@pytest.mark.parametrize("settings", [BatchSettings(), IDEMPOTENT], ids=["plain", "idempotent"])
def test_untagged_batches_follow_the_policy(
    policy: UntaggedPolicy, slot: int, settings: BatchSettings
) -> None:
    header = batches.parse(batch(settings))

    assert read_slot(header, 4, policy) == slot
    with pytest.raises(Corrupt, match="not written through the proxy"):
        read_slot(header, 4, REJECT)


@pytest.mark.parametrize(
    "data",
    [
        stored(b"".join(tag_batch(batch(IDEMPOTENT), 1).records), attributes=3 << 8),
        stored(b"".join(tag_batch(batch(IDEMPOTENT), 1).records), producer_id=7),
        b"".join(tag_batch(batch(), 9).records),
        stored(batch(IDEMPOTENT), producer_id=(1 << 52) | (1 << 44)),
    ],
    ids=["carriers differ", "one carrier is lost", "no such slot", "bits of another cluster"],
)
def test_damaged_tags_are_never_guessed(data: bytes) -> None:
    with pytest.raises(Corrupt):
        read_slot(batches.parse(data), 4, SLOT_0)


def test_reserved_tags_belong_to_no_partition() -> None:
    header = batches.parse(stored(batch(), attributes=(RESERVED_TAG << 8) - (1 << 16)))

    assert read_slot(header, MAX_SLOTS, REJECT) == NO_SLOT
