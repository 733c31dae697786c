"""A broker that rewrites its log all the time, and counts of what its maintenance does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rookery.broker.settings import BrokerSettings
from rookery.broker.storage.objectlog import open_handles
from rookery.cluster.entry import read_entry, read_events
from rookery.cluster.events.logevents import (
    ObjectsCondemned,
    ObjectsDropped,
    ReplacedRange,
    RowsReplaced,
)
from rookery.cluster.events.topicevents import LogStartMoved
from rookery.cluster.port import ClusterLog, EntriesTrimmed
from rookery.cluster.state.partition import RowKind
from rookery.wire.message import Message

EAGER: Final = (
    # Readers need the objects, and often again: nothing is in memory for long.
    *("--tail-bytes", "0", "--cache-bytes", "1000000"),
    *("--rewrite-merge-age-ms", "300", "--rewrite-merge-bytes", "300000"),
    *("--rewrite-row-bytes", "20000", "--rewrite-segment-bytes", "150000"),
    *("--rewrite-segment-min-bytes", "1000", "--rewrite-segment-age-ms", "1500"),
    *("--compaction-min-bytes", "1", "--snapshot-entries", "100"),
    *("--upkeep-interval-ms", "300", "--delete-delay-ms", "300"),
    *("--orphan-interval-ms", "1000"),
    # A busy host must not cost the caretaker its place.
    *("--session-timeout-ms", "60000"),
)
"""Settings of a broker that moves each record several times within seconds."""


class UpkeepWatch:
    """Reads the cluster log while the broker runs, and counts the changes of maintenance."""

    def __init__(self, folder: Path) -> None:
        """Prepare; `follow` counts."""
        self.counts: Counter[str] = Counter()
        self._settings = BrokerSettings(data=str(folder))

    async def follow(self) -> None:
        """Count until the task is cancelled."""
        handles = open_handles(self._settings)
        try:
            await self._follow(handles.cluster_log)
        finally:
            await handles.close()

    async def _follow(self, log: ClusterLog) -> None:
        number = await log.head()
        while True:
            await log.wait(number)
            try:
                entries = await log.read(number)
            except EntriesTrimmed as trimmed:
                number = trimmed.floor
                continue
            for number, data in entries:
                for event in read_events(number, read_entry(number, data)):
                    self.counts.update(_changes(event))
            self.counts["trimmed entries"] = await log.floor()


def _changes(event: Message) -> Iterator[str]:
    match event:
        case RowsReplaced():
            yield from map(_name, event.ranges)
        case LogStartMoved():
            yield "deleted records"
        case ObjectsCondemned():
            yield from ["condemned objects"] * len(event.object_ids)
        case ObjectsDropped():
            yield from ["deleted objects"] * len(event.object_ids)
        case _:
            pass


def _name(replaced: ReplacedRange) -> str:
    if replaced.cleaned_to >= 0:
        return "compactions"
    return "segments" if replaced.kind & RowKind.SEGMENT else "merges"
