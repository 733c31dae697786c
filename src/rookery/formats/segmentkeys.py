"""The keys of segments, with the way back.

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
from rookery.formats.keys import INCARNATION_LIMIT, NUMBER_LIMIT

RESERVED: Final = "_rookery"
"""What no namespace may be called: all that is not a segment lies there."""
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
