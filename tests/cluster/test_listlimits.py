"""Lists within an event: the longest one that a process makes fits into an entry."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final

import pytest

from rookery.broker import transactions
from rookery.broker.groups import offsets, removal
from rookery.cluster.entry import EVENTS, MAX_EVENT_BYTES, MAX_EVENTS, size_of
from rookery.cluster.state.rules.sinkrules import MAX_OBJECTS, MAX_SOURCE_OFFSETS
from rookery.direct import rowstager
from rookery.direct.targets import MAX_PARTITIONS
from rookery.log.maintain import newobjects, retention, rewriter, sweeper
from rookery.log.write import uploads
from rookery.logdir.importer import partition
from rookery.testing import messages
from rookery.wire.codec import table_of
from rookery.wire.message import Message, Type
from rookery.wire.table import FieldStep, WireTable

# Items of a fixed size: the longest list.
COUNTS: Final[dict[str, int]] = {
    "BatchesCommitted.extents": MAX_EVENTS,
    "MarkersWritten.places": transactions._PLACES,
    "ObjectsCondemned.object_ids": max(newobjects._AT_ONCE, sweeper._AT_ONCE, uploads._AT_ONCE),
    "ObjectsDropped.object_ids": sweeper._DELETES,
    "OffsetsDeleted.places": offsets._PART_PLACES,
    "OffsetsExpired.places": removal._MAX_PLACES,
    "PartitionsAddedToTransaction.places": transactions._PLACES,
    "ProducersExpired.producers": retention._PRODUCERS_AT_ONCE,
    "ProducersImported.aborted": partition._AT_ONCE,
    "ProducersImported.producers": partition._AT_ONCE,
    "RowsReplaced.ranges": rewriter._EVENT_RANGES,
    "RowsReplaced.ranges.pieces": rewriter._EVENT_PIECES,
    "SegmentsImported.segments": 1,
    "SegmentsStaged.segments": 1,
    "SinkAborted.object_ids": max(rowstager._AT_ONCE, sweeper._AT_ONCE),
    "SinkCommitted.object_ids": MAX_OBJECTS,
    "SinkPartStaged.runs": MAX_EVENTS,
    "TopicPinned.starts": MAX_PARTITIONS,
}
# Items with text, or lists without a fixed limit.
BOUNDED: Final[dict[str, str]] = {
    "AclsCreated.rules": "divide_rules",
    "AclsDeleted.filters": "divide_filters",
    "BrokerRegistered.endpoints": "one for each listener of the settings",
    "ConfigsChanged.changes": "MAX_CONFIG_BYTES",
    "ConfigsChanged.observed": "MAX_CONFIG_BYTES",
    "DelegationTokenCreated.renewers": "decide() refuses it",
    "OffsetsCommitted.offsets": "divide_offsets",
    "OffsetsPublished.offsets": "divide_offsets",
    "PartitionImported.epochs": "12 bytes for each leader epoch of a partition",
    "ProducersImported.producers.batches": "the last five",
    "QuotasChanged.changes": "one for each kind of quota",
    "QuotasChanged.entity": "one for each kind of entity",
    "RowsLost.base_offsets": "one",
    "ScramCredentialsChanged.changes": "decide() refuses it",
    "TopicCreated.configs": "MAX_CONFIG_BYTES",
    "TransactionOffsetsCommitted.offsets": "divide_offsets",
}
LONGEST_TEXT: Final = {"source_offsets": MAX_SOURCE_OFFSETS, "sink_id": 255, "query_id": 255}
LONGEST_ID: Final = 32_767


def lists_of(table: WireTable, name: str) -> Iterator[str]:
    """Yield the paths of a message's lists, with the lists of their items."""
    for step in steps_of(table):
        if step.type is Type.ARRAY:
            yield f"{name}.{step.name}"
            if step.table is not None:
                yield from lists_of(step.table, f"{name}.{step.name}")


def steps_of(table: WireTable) -> list[FieldStep]:
    return [*table.steps, *table.tagged.values()]


def longest(table: WireTable, name: str, share: int = 1) -> Message:
    """Build a message with the longest lists and texts, or a share of them for each of its kind."""
    message: Any = messages._struct(table, Random(1))
    message.unknown_tags = {}
    for step in steps_of(table):
        path = f"{name}.{step.name}"
        if step.type is Type.ARRAY and path in COUNTS:
            count = -(-COUNTS[path] // share)
            item = 2**40 if step.table is None else longest(step.table, path, count)
            setattr(message, step.name, [item] * count)
        elif step.type is Type.STRING and share == 1:
            setattr(message, step.name, "x" * LONGEST_TEXT.get(step.name, LONGEST_ID))
    assert isinstance(message, Message)
    return message


def test_every_list_of_an_event_has_a_limit() -> None:
    found = {
        path for kind in EVENTS.values() for path in lists_of(table_of(kind, 0), kind.__name__)
    }

    assert COUNTS.keys() | BOUNDED.keys() == found
    assert not COUNTS.keys() & BOUNDED.keys()


@pytest.mark.parametrize("name", sorted({path.partition(".")[0] for path in COUNTS}))
def test_longest_lists_fit_into_an_entry(name: str) -> None:
    [kind] = (kind for kind in EVENTS.values() if kind.__name__ == name)

    event = longest(table_of(kind, 0), name)

    assert size_of(event) <= MAX_EVENT_BYTES
