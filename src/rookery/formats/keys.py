"""Every file name and object key in one place, with the way back.

Whatever holds batches is known in state by one number, its object id: the incarnation that wrote it
(1 to 2**39 - 1) above a number within the incarnation (24 bits). It fits a positive int64, and ids
sort by incarnation, then by the order in which the objects were begun. No object has the id 0.

The highest bit of the number tells journal files, which lie in a folder, from objects in the store.

Segments have readable keys:

    {namespace}/{topic}/{partition}/segment-{base offset, 20 digits}.kfs     and .index, .times
    {namespace}/{topic}/{partition}/segment-{base offset}-{incarnation}-{number}.kfs

The second form is for a segment whose plain name is taken: the topic was created anew, or the
segment was rewritten. Which key counts is known to the cluster log alone. A topic may begin with a
dot, a part of a key may not: such a dot is written as `=`, which no topic's name has.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from rookery.errors import ConfigError

NUMBER_BITS = 24
NUMBER_LIMIT = 1 << NUMBER_BITS
"""One more than the highest number of an object within its incarnation."""
STORED = 1 << (NUMBER_BITS - 1)
"""Numbers from this one on are of objects in the store; below it they are of journal files."""
INCARNATION_LIMIT = 1 << (63 - NUMBER_BITS)
"""One more than the highest incarnation that an object id can name."""
SNAPSHOT_LIMIT = 1 << 63
"""One more than the highest number of a cluster log entry."""
SNAPSHOTS = "_rookery/snapshots/"
"""What the keys of all snapshots begin with."""
NEWEST_SNAPSHOT = "_rookery/newest-snapshot"
"""The key of the object that says which snapshot is the newest, so that nobody need list them."""
CLUSTER = "_rookery/cluster"
"""The key of the object that says whose cluster's log this is."""
OBJECTS = "_rookery/objects/"
"""What the keys of all shared objects begin with."""

_JOURNAL = re.compile(r"journal-([0-9a-f]{16})-([0-9a-f]{8})\.log")
_OBJECT = re.compile(r"_rookery/objects/([0-9a-f]{16})/([0-9a-f]{6})")
_SNAPSHOT = re.compile(r"_rookery/snapshots/([0-9]{20})\.snapshot")

RESERVED: Final = "_rookery"
"""The folder of all objects that are not segments; no namespace may have this name."""
SEGMENT_ENDING: Final = ".kfs"
INDEX_ENDING: Final = ".index"
TIMES_ENDING: Final = ".times"

_NAMESPACE: Final = re.compile(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,248}")
_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_KEY: Final = re.compile(
    r"(?P<namespace>[^/]+)/(?P<topic>[^/]+)/(?P<partition>0|[1-9][0-9]{0,9})/"
    r"segment-(?P<base>[0-9]{20})(?:-(?P<incarnation>[1-9][0-9]{0,11})-(?P<number>0|[1-9][0-9]{0,7}))?"
    r"(?P<ending>\.kfs|\.index|\.times)"
)
_OFFSET_LIMIT: Final = 1 << 63
_PARTITION_LIMIT: Final = 1 << 31


def object_id(incarnation: int, number: int) -> int:
    """Pack an incarnation and the number of one of its files into an object id."""
    if not 1 <= incarnation < INCARNATION_LIMIT:
        raise ValueError(f"incarnation {incarnation} is not within 1..{INCARNATION_LIMIT - 1}")
    if not 0 <= number < NUMBER_LIMIT:
        raise ValueError(f"object number {number} is not within 0..{NUMBER_LIMIT - 1}")
    return incarnation << NUMBER_BITS | number


def split_object_id(identity: int) -> tuple[int, int]:
    """Return the incarnation and the file number that an object id is made of."""
    if not NUMBER_LIMIT <= identity < 1 << 63:
        raise ValueError(f"object id {identity} is not within {NUMBER_LIMIT}..{(1 << 63) - 1}")
    return identity >> NUMBER_BITS, identity & (NUMBER_LIMIT - 1)


def is_stored(identity: int) -> bool:
    """Whether an object lies in the store, not in a journal file."""
    return bool(identity & STORED)


def incarnation_prefix(incarnation: int) -> str:
    """Return what the keys of all shared objects of an incarnation begin with."""
    return f"{OBJECTS}{incarnation:016x}/"


def object_key(identity: int) -> str:
    """Return the key of a shared object: one that holds batches of many partitions."""
    incarnation, number = split_object_id(identity)
    return f"{incarnation_prefix(incarnation)}{number:06x}"


def parse_object_key(key: str) -> int | None:
    """Return the object id of the shared object so named, None if it is no such key."""
    match = _OBJECT.fullmatch(key)
    if match is None:
        return None
    incarnation, number = int(match[1], 16), int(match[2], 16)
    if not 1 <= incarnation < INCARNATION_LIMIT or number < STORED:
        return None
    return object_id(incarnation, number)


def journal_name(identity: int) -> str:
    """Return the file name of the journal file with this object id."""
    incarnation, number = split_object_id(identity)
    return f"journal-{incarnation:016x}-{number:08x}.log"


def parse_journal_name(name: str) -> int | None:
    """Return the object id of the journal file so named, None if it is no journal's name."""
    match = _JOURNAL.fullmatch(name)
    if match is None:
        return None
    incarnation, number = int(match[1], 16), int(match[2], 16)
    if not 1 <= incarnation < INCARNATION_LIMIT or number >= NUMBER_LIMIT:
        return None
    return object_id(incarnation, number)


def snapshot_key(number: int) -> str:
    """Return the key of the snapshot taken after the cluster log's entry of this number."""
    if not 0 <= number < SNAPSHOT_LIMIT:
        raise ValueError(f"entry number {number} is not within 0..{SNAPSHOT_LIMIT - 1}")
    return f"{SNAPSHOTS}{number:020}.snapshot"


def parse_snapshot_key(key: str) -> int | None:
    """Return the entry number of the snapshot so named, None if it is no snapshot's key."""
    match = _SNAPSHOT.fullmatch(key)
    if match is None or int(match[1]) >= SNAPSHOT_LIMIT:
        return None
    return int(match[1])


class Generation(NamedTuple):
    """What tells segments apart that begin at the same offset: who wrote it, and its number."""

    incarnation: int
    number: int


class SegmentKey(NamedTuple):
    """A key of a segment, or of a file beside one, taken apart."""

    namespace: str
    topic: str
    partition: int
    base_offset: int
    generation: Generation | None
    ending: str


def check_namespace(namespace: str) -> None:
    """Refuse what cannot be the first part of a key.

    Raises:
        ConfigError: it must be changed; the text says to what.
    """
    if not _NAMESPACE.fullmatch(namespace) or namespace == RESERVED:
        raise ConfigError(
            f"namespace {namespace[:80]!r}: 1 to 249 of a-z, A-Z, 0-9, '.', '_', '-', "
            f"not beginning with a dot, and not {RESERVED!r}"
        )


def segment_key(
    namespace: str,
    topic: str,
    partition: int,
    base_offset: int,
    generation: Generation | None = None,
) -> str:
    """Return the key of a segment.

    Raises:
        ConfigError: the namespace is not valid.
        ValueError: something else is not.
    """
    check_namespace(namespace)
    if not _TOPIC.fullmatch(topic):
        raise ValueError(f"{topic[:80]!r} is no topic name")
    if not 0 <= partition < _PARTITION_LIMIT or not 0 <= base_offset < _OFFSET_LIMIT:
        raise ValueError(f"partition {partition} or base offset {base_offset} is out of range")
    folder = f"{namespace}/{_escape(topic)}/{partition}"
    return f"{folder}/segment-{base_offset:020}{_suffix(generation)}{SEGMENT_ENDING}"


def index_key(key: str) -> str:
    """Return the key of the index beside a segment."""
    return _sibling(key, INDEX_ENDING)


def times_key(key: str) -> str:
    """Return the key of the times file beside a segment."""
    return _sibling(key, TIMES_ENDING)


def partition_prefix(namespace: str, topic: str, partition: int) -> str:
    """Return what the keys of all segments of a partition begin with."""
    return segment_key(namespace, topic, partition, 0).rpartition("/")[0] + "/"


def parse_segment_key(key: str) -> SegmentKey | None:
    """Take a key apart; None if it is not the one way to write a segment's key."""
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    topic = match["topic"]
    if topic.startswith("="):
        topic = f".{topic[1:]}"
    generation = None
    if match["incarnation"]:
        generation = Generation(int(match["incarnation"]), int(match["number"]))
    found = SegmentKey(
        match["namespace"], topic, int(match["partition"]), int(match["base"]), generation,
        match["ending"],
    )  # fmt: skip
    try:
        written = segment_key(*found[:5])
    except (ConfigError, ValueError):
        return None
    return found if _sibling(written, found.ending) == key else None


def _escape(topic: str) -> str:
    return f"={topic[1:]}" if topic.startswith(".") else topic


def _suffix(generation: Generation | None) -> str:
    if generation is None:
        return ""
    incarnation, number = generation
    if not 1 <= incarnation < INCARNATION_LIMIT or not 0 <= number < NUMBER_LIMIT:
        raise ValueError(f"incarnation {incarnation} or number {number} is out of range")
    return f"-{incarnation}-{number}"


def _sibling(key: str, ending: str) -> str:
    if not key.endswith(SEGMENT_ENDING):
        raise ValueError(f"{key!r} is not the key of a segment: it does not end in .kfs")
    return key.removesuffix(SEGMENT_ENDING) + ending
