"""All file names and object keys in one place, with their parsers.

The state identifies everything that holds batches by one number, its object id. It consists of the
incarnation that wrote the object (1 to 2**39 - 1) above a number within the incarnation (24 bits).
It fits a positive int64. Ids sort by incarnation, then by the order in which the objects were
started. No object has the id 0.

The highest bit of the number distinguishes journal files, which are in a folder, from objects in
the store.

Segments have readable keys:

    {namespace}/{topic}/{partition}/segment-{base offset, 20 digits}.kfs     and .index, .times
    {namespace}/{topic}/{partition}/segment-{base offset}-{incarnation}-{number}.kfs

The second form is for a segment whose plain name is in use, because the topic was created again or
the segment was rewritten. Only the cluster log knows which key is valid. A topic may begin with a
dot, but a part of a key may not. Such a dot is written as `=`, which no topic name contains.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from rookery.errors import ConfigError

NUMBER_BITS = 24
NUMBER_LIMIT = 1 << NUMBER_BITS
"""One more than the highest number of an object within its incarnation."""
STORED = 1 << (NUMBER_BITS - 1)
"""Numbers from this one on belong to objects in the store; lower ones belong to journal files."""
INCARNATION_LIMIT = 1 << (63 - NUMBER_BITS)
"""One more than the highest incarnation that an object id can contain."""
SNAPSHOT_LIMIT = 1 << 63
"""One more than the highest number of a cluster log entry."""
SNAPSHOTS = "_rookery/snapshots/"
"""The prefix of the keys of all snapshots."""
NEWEST_SNAPSHOT = "_rookery/newest-snapshot"
"""The key of the object that names the newest snapshot, so that no listing is needed."""
CLUSTER = "_rookery/cluster"
"""The key of the object that names the cluster that owns the store."""
OBJECTS = "_rookery/objects/"
"""The prefix of the keys of all shared objects."""

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
    """Return the incarnation and the file number of an object id."""
    if not NUMBER_LIMIT <= identity < 1 << 63:
        raise ValueError(f"object id {identity} is not within {NUMBER_LIMIT}..{(1 << 63) - 1}")
    return identity >> NUMBER_BITS, identity & (NUMBER_LIMIT - 1)


def is_stored(identity: int) -> bool:
    """Whether an object is in the store, not in a journal file."""
    return bool(identity & STORED)


def incarnation_prefix(incarnation: int) -> str:
    """Return the prefix of the keys of all shared objects of an incarnation."""
    return f"{OBJECTS}{incarnation:016x}/"


def object_key(identity: int) -> str:
    """Return the key of a shared object: one that holds batches of many partitions."""
    incarnation, number = split_object_id(identity)
    return f"{incarnation_prefix(incarnation)}{number:06x}"


def parse_object_key(key: str) -> int | None:
    """Return the object id of the shared object with this key, None if it is not such a key."""
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
    """Return the object id of the journal file with this name, None if it is not such a name."""
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
    """Return the entry number of the snapshot with this key, None if it is not such a key."""
    match = _SNAPSHOT.fullmatch(key)
    if match is None or int(match[1]) >= SNAPSHOT_LIMIT:
        return None
    return int(match[1])


class Generation(NamedTuple):
    """Distinguishes segments with the same base offset by their writer and number."""

    incarnation: int
    number: int


class SegmentKey(NamedTuple):
    """The parsed key of a segment, or of a file that belongs to one."""

    namespace: str
    topic: str
    partition: int
    base_offset: int
    generation: Generation | None
    ending: str


def check_namespace(namespace: str) -> None:
    """Reject a namespace that cannot be the first part of a key.

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
        ValueError: another argument is not valid.
    """
    check_namespace(namespace)
    if not _TOPIC.fullmatch(topic):
        raise ValueError(f"{topic[:80]!r} is not a topic name")
    if not 0 <= partition < _PARTITION_LIMIT or not 0 <= base_offset < _OFFSET_LIMIT:
        raise ValueError(f"partition {partition} or base offset {base_offset} is out of range")
    folder = f"{namespace}/{_escape(topic)}/{partition}"
    return f"{folder}/segment-{base_offset:020}{_suffix(generation)}{SEGMENT_ENDING}"


def index_key(key: str) -> str:
    """Return the key of the index of a segment."""
    return _sibling(key, INDEX_ENDING)


def times_key(key: str) -> str:
    """Return the key of the times file of a segment."""
    return _sibling(key, TIMES_ENDING)


def partition_prefix(namespace: str, topic: str, partition: int) -> str:
    """Return the prefix of the keys of all segments of a partition."""
    return segment_key(namespace, topic, partition, 0).rpartition("/")[0] + "/"


def parse_segment_key(key: str) -> SegmentKey | None:
    """Parse a key; None if it is not the canonical form of a segment's key."""
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    topic = match["topic"]
    if topic.startswith("="):
        topic = f".{topic[1:]}"
    generation = None
    if match["incarnation"]:
        generation = Generation(int(match["incarnation"]), int(match["number"]))
    parsed = SegmentKey(
        match["namespace"], topic, int(match["partition"]), int(match["base"]), generation,
        match["ending"],
    )  # fmt: skip
    try:
        written = segment_key(*parsed[:5])
    except (ConfigError, ValueError):
        return None
    return parsed if _sibling(written, parsed.ending) == key else None


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
