"""Finds batches that were lost when the machine went down.

With durability "os" an acknowledged batch may have been only in memory when the machine lost its
power. Every batch that should be in a journal is then read and checked once. Damaged batches become
a gap in the state, instead of wrong bytes or a permanent error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rookery.cluster.events.logevents import RowsLost
from rookery.cluster.replica import Replica
from rookery.cluster.state.partition import Partition, Row
from rookery.cluster.state.topics import Topic
from rookery.errors import Corrupt
from rookery.formats.keys import is_stored
from rookery.log.read.files import JournalFiles, MissingObject
from rookery.log.read.runs import expect_row
from rookery.records.policy import rewrite
from rookery.wire.message import Message

log = logging.getLogger(__name__)

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class JournalSurvey:
    """Checks journals once after each start of the machine."""

    def __init__(
        self, replica: Replica, files: JournalFiles, mark: Path, boot_id: Path = BOOT_ID
    ) -> None:
        """Prepare the survey.

        Args:
            replica: knows which batches should exist.
            files: the journal files.
            mark: the file that records the boot for which the survey was done.
            boot_id: the file with the current boot id of the system; without it there is no survey.
        """
        self._replica = replica
        self._files = files
        self._mark = mark
        self._boot_id = boot_id

    @property
    def is_due(self) -> bool:
        """Whether the machine has been rebooted since journals were written here."""
        if not self._boot_id.exists():
            return False
        return self._mark.exists() and self._mark.read_text() != self._boot_id.read_text()

    def remember(self) -> None:
        """Record that this boot needs no survey, or that it was done."""
        if self._boot_id.exists():
            self._mark.write_text(self._boot_id.read_text())

    async def run(self) -> int:
        """Find damaged rows and record them as lost; return the number of lost records."""
        events: list[Message] = []
        lost = 0
        for topic, partition, row in self._rows():
            if await self._is_whole(partition, row):
                continue
            count = row.end_offset - row.base_offset
            lost += count
            log.error(
                "%d records were acknowledged but are not on the disk: the machine went down "
                'before they were written, which durability "os" allows',
                count,
                extra={"topic": topic.name, "partition": partition.index,
                       "offset": row.base_offset},
            )  # fmt: skip
            events.append(
                RowsLost(
                    topic_id=topic.id, partition=partition.index, base_offsets=[row.base_offset]
                )
            )
        await self._replica.propose_all(events)
        return lost

    def _rows(self) -> Iterator[tuple[Topic, Partition, Row]]:
        for topic in list(self._replica.state.topics):
            for partition in topic.partitions:
                rows = [partition.row(index) for index in range(len(partition.base_offsets))]
                yield from ((topic, partition, row) for row in rows if _is_in_journal(row))

    async def _is_whole(self, partition: Partition, row: Row) -> bool:
        try:
            data = await self._files.read(row.object_id, row.position, row.size)
        except (Corrupt, MissingObject):
            return False
        return rewrite(data, expect_row(partition, row)).damage is None


def _is_in_journal(row: Row) -> bool:
    # A store acknowledges objects when they are durable; the cluster log is responsible for
    # entries.
    return row.object_id > 0 and not is_stored(row.object_id)
