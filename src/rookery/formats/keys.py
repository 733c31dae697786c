"""Every file name and object key in one place, with the way back.

Whatever holds batches is known in state by one number, its object id: the incarnation that wrote it
(1 to 2**39 - 1) above a number within the incarnation (24 bits). It fits a positive int64, and ids
sort by incarnation, then by the order in which the objects were begun. No object has the id 0.

The highest bit of the number tells journal files, which lie in a folder, from objects in the store.
"""

from __future__ import annotations

import re

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
