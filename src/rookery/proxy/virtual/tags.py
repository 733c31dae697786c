"""Tags of batches: which slot of a physical partition a batch belongs to.

A tag is the number of the slot plus one. It has two carriers, which are written together:

- the high byte of the attributes, which Kafka ignores and keeps;
- bits 52 to 59 of the producer id. Ids of one producer in two slots differ then, so that Kafka
  checks the sequences of each virtual partition on their own.

Kafka clears the first carrier when it changes a batch, for example because a client has sent a
wrong maximum timestamp; it always keeps the second. Batches without a producer id have the first
carrier only, and so have those of transactions: Kafka accepts these only with the id that it has
given out. So their timestamps are corrected here.

Both carriers are removed when a batch is delivered. The CRC is patched, so that the delivered batch
equals the produced one except for base offset and leader epoch. The batches of transactions also
keep the sequences that the proxy has given them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rookery.errors import ApiError, Corrupt, ErrorCode
from rookery.proxy.virtual.rules import UntaggedPolicy
from rookery.records import batches, recordcodec
from rookery.records.batches import BatchHeader
from rookery.wire.buffer import Buffer
from rookery.wire.message import Parts

RESERVED_TAG: Final = 255
"""The tag of the proxy's own batches, which belong to no virtual partition."""
NO_SLOT: Final = -1
_ATTRIBUTE_SHIFT: Final = 8
_ID_SHIFT: Final = 52
_ID_LIMIT: Final = 1 << 44
_LOW_BYTE: Final = 0xFF


class TaggedBatch(NamedTuple):
    """A batch for the upstream."""

    header: BatchHeader
    source: Buffer
    """The batch as the client has sent it."""

    @property
    def records(self) -> Parts:
        """The bytes."""
        return Parts(batches.restamp(self.source, self.header))

    def renumber(self, sequence: int) -> Parts:
        """Return the bytes with another base sequence."""
        header = self.header._replace(base_sequence=sequence)
        return Parts(batches.restamp(self.source, header))


def tag_batch(
    records: Buffer | Parts | None, slot: int, *, is_transactional: bool = False
) -> TaggedBatch:
    """Check a batch that a client has produced, and write the tag of its slot.

    Args:
        records: the batch.
        slot: of its virtual partition.
        is_transactional: whether the request belongs to a transaction.

    Raises:
        ApiError: the batch is refused, with Kafka's code.
    """
    if isinstance(records, tuple):
        records = b"".join(records)
    headers = batches.validate(records if records is not None else b"")
    if len(headers) != 1:
        raise ApiError(ErrorCode.INVALID_RECORD, "a partition needs exactly one batch")
    [header] = headers
    if header.is_transactional != is_transactional:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            "a request with a transactional id, and no other, needs batches of a transaction",
        )
    if header.attributes & ~_LOW_BYTE:
        raise ApiError(
            ErrorCode.INVALID_RECORD, "attribute bits 8 to 15 are for tags of virtual partitions"
        )
    if header.producer_id >= _ID_LIMIT:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"producer id {header.producer_id} leaves no room for tags of virtual partitions",
        )
    assert records is not None  # noqa: S101 (no batch is valid without bytes)
    tag = slot + 1
    tagged = header._replace(
        attributes=_convert_signed(header.attributes | tag << _ATTRIBUTE_SHIFT)
    )
    if header.has_producer_id and not is_transactional:
        tagged = tagged._replace(producer_id=header.producer_id | tag << _ID_SHIFT)
    else:
        contents = recordcodec.inspect(records, header)
        tagged = tagged._replace(max_timestamp=contents.max_timestamp)
    return TaggedBatch(tagged, records)


def read_slot(header: BatchHeader, slots: int, untagged: UntaggedPolicy) -> int:
    """Return the slot of a batch in the log; `NO_SLOT` if it belongs to none.

    Raises:
        Corrupt: its carriers contradict each other, or it is not allowed.
    """
    # Markers belong to the slots in which the transaction has written, and have no tag.
    tag = RESERVED_TAG if header.is_control else _read_tag(header)
    if tag == RESERVED_TAG:
        return NO_SLOT
    if tag > slots:
        raise _damage(header, f"tag {tag} is for more than the {slots} slots of the partition")
    return tag - 1 if tag else _place_untagged(header, untagged)


def _read_tag(header: BatchHeader) -> int:
    """Return the tag of a batch; 0 if it has none."""
    tag = header.attributes >> _ATTRIBUTE_SHIFT & _LOW_BYTE
    if header.is_transactional or not header.has_producer_id:
        return tag
    id_tag, rest = divmod(header.producer_id, 1 << _ID_SHIFT)
    if (id_tag or tag) and (rest >= _ID_LIMIT or tag not in {0, id_tag}):
        raise _damage(header, f"its attributes have tag {tag}, its producer id {id_tag}")
    return id_tag


def _place_untagged(header: BatchHeader, untagged: UntaggedPolicy) -> int:
    """Return the slot of a batch without a tag."""
    if untagged is UntaggedPolicy.REJECT:
        raise _damage(header, "it was not written through the proxy; see `untagged`")
    if untagged is UntaggedPolicy.QUARANTINE:
        return NO_SLOT
    if header.is_transactional:
        raise _damage(header, "it belongs to a transaction that did not pass the proxy")
    return 0


def deliver_batch(records: Buffer, header: BatchHeader, base_offset: int) -> bytes:
    """Return a batch for consumers: without tags, at its virtual offset."""
    own = header._replace(base_offset=base_offset, attributes=header.attributes & _LOW_BYTE)
    if header.has_producer_id and not header.is_transactional:
        own = own._replace(producer_id=header.producer_id & (1 << _ID_SHIFT) - 1)
    return b"".join(batches.restamp(records, own))


def _convert_signed(attributes: int) -> int:
    return attributes - (1 << 16) if attributes >= 1 << 15 else attributes


def _damage(header: BatchHeader, reason: str) -> Corrupt:
    return Corrupt(reason, name=f"the batch at offset {header.base_offset}")
