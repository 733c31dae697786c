"""The head of a shared object is read completely or not at all."""

from __future__ import annotations

import pytest

from rookery.errors import Corrupt
from rookery.formats.manifest import (
    HEAD_BYTES,
    EarlierObject,
    Manifest,
    ManifestExtent,
    ManifestTopic,
    manifest_length,
    read_head,
    write_head,
)

TOPIC = bytes(range(16))


def manifest() -> Manifest:
    extent = ManifestExtent(
        topic=0,
        partition=3,
        size=70,
        kind=0,
        base_offset=-1,
        records=2,
        attributes=0,
        max_timestamp=1000,
        producer_id=5,
        producer_epoch=1,
        base_sequence=9,
    )
    return Manifest(
        object_id=(7 << 24) + (1 << 23),
        created_ms=1_700_000_000_000,
        seen=12,
        topics=[ManifestTopic(topic_id=TOPIC, name="orders", partitions=4)],
        extents=[extent],
        earlier=[
            EarlierObject(object_id=(7 << 24) + 1, base_offsets=[10, -1], append_times=[-1, 5])
        ],
    )


def test_manifest_round_trips_and_states_where_batches_start() -> None:
    head = write_head(manifest())
    parsed, position = read_head(head + b"batches")
    assert parsed == manifest()
    assert position == len(head) == manifest_length(head[:HEAD_BYTES])


def test_every_flipped_byte_is_found() -> None:
    head = bytearray(write_head(manifest()))
    for at in range(len(head)):
        broken = bytearray(head)
        broken[at] ^= 0x01
        if at in (6, 7):
            continue  # two bytes of zero, which nothing is made of
        with pytest.raises(Corrupt):
            read_head(broken)


def test_every_truncated_head_is_refused() -> None:
    head = write_head(manifest())
    for length in range(len(head)):
        with pytest.raises(Corrupt):
            read_head(head[:length])
