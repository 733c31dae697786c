"""Exposes a bucket written by KafScale as a state, from its listing and segment footers.

    {namespace}/{topic}/{partition}/segment-{base offset}.kfs      and an .index next to each

There is no cluster log, so a listing is the only source. A partition ends after its last segment.
There are no transactions: KafScale does not support them.
"""

from __future__ import annotations

from collections import defaultdict
from hashlib import blake2b
from typing import Final

from rookery.cluster.state.objects import SegmentName
from rookery.cluster.state.partition import Partition, RowKind
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.errors import Corrupt
from rookery.formats.keys import (
    INCARNATION_LIMIT,
    NUMBER_LIMIT,
    SEGMENT_ENDING,
    STORED,
    SegmentKey,
    check_namespace,
    object_id,
    parse_segment_key,
)
from rookery.formats.segment import FOOTER_BYTES, HEADER_BYTES, parse_footer
from rookery.store.port import ReadableStore

_FAR: Final = (1 << 62) - 1

Sized = tuple[SegmentKey, str, int]
"""A segment, its key and its size."""


async def fill(state: State, store: ReadableStore, namespace: str) -> None:
    """Load all topics of a namespace into a state, as the bucket has them now.

    Raises:
        Corrupt: a segment has no valid footer.
        Unavailable: the store cannot be reached.
    """
    check_namespace(namespace)
    topics: dict[str, dict[int, list[Sized]]] = defaultdict(lambda: defaultdict(list))
    for item in await store.list(f"{namespace}/"):
        segment = parse_segment_key(item.key)
        if segment is not None and segment.ending == SEGMENT_ENDING and segment.generation is None:
            topics[segment.topic][segment.partition].append((segment, item.key, item.size))
    for name, partitions in topics.items():
        topic = Topic(_id_of(namespace, name), name, 1)
        topic.partitions = [Partition(index) for index in range(max(partitions) + 1)]
        for index, segments in partitions.items():
            await _fill(state, store, topic.partitions[index], sorted(segments))
        if (known := state.topics.by_name.get(name)) is not None:
            state.topics.remove(known)
        state.topics.add(topic)


async def _fill(
    state: State, store: ReadableStore, partition: Partition, segments: list[Sized]
) -> None:
    """Add the rows of one partition, one per segment."""
    for segment, key, size in segments:
        if size < HEADER_BYTES + FOOTER_BYTES:
            raise Corrupt(f"{key}: is too short for a segment: {size} bytes")
        number = object_of(key)
        state.objects.segments[number] = SegmentName(
            segment.topic, segment.partition, segment.base_offset, is_plain=True
        )
        partition.base_offsets.append(segment.base_offset)
        partition.objects.append(number)
        partition.positions.append(0)
        partition.sizes.append(size)
        # The latest timestamp of the segment is unknown, so no time filter may exclude it.
        partition.times.append(_FAR)
        partition.kinds.append(RowKind.FINAL | RowKind.SEGMENT)
    _, key, size = segments[-1]
    footer = parse_footer(await store.read(key, size - FOOTER_BYTES, FOOTER_BYTES), key)
    partition.log_start = segments[0][0].base_offset
    partition.next_offset = footer.last_offset + 1
    partition.cleaned_to = _FAR  # offsets may be missing


def _id_of(namespace: str, topic: str) -> bytes:
    return blake2b(f"{namespace}/{topic}".encode(), digest_size=16).digest()


def object_of(key: str) -> int:
    """Return a number for a key that is the same in every process."""
    digest = blake2b(key.encode(), digest_size=16).digest()
    incarnation = 1 + int.from_bytes(digest[:8], "big") % (INCARNATION_LIMIT - 1)
    return object_id(
        incarnation, STORED + int.from_bytes(digest[8:], "big") % (NUMBER_LIMIT - STORED)
    )
