"""After the machine went down: which batches the operating system never wrote.

With durability "os" an acknowledged batch may have been in memory only when the machine lost its
power. Then every batch that should be in a journal is read and checked once, and what is damaged
becomes a gap that everybody knows of, instead of wrong bytes or an error for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rookery.cluster.events.log import RowsLost
from rookery.cluster.replica import Replica
from rookery.cluster.state.partition import Partition, Row
from rookery.cluster.state.topics import Topic
from rookery.errors import Corrupt
from rookery.formats.keys import is_stored
from rookery.log.read.files import JournalFiles, MissingJournal
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
        """Check nothing yet.

        Args:
            replica: knows what should be there.
            files: where it should be.
            mark: the file that remembers which start of the machine was surveyed.
            boot_id: where the system tells its present start; without it there is no survey.
        """
        self._replica = replica
        self._files = files
        self._mark = mark
        self._boot_id = boot_id

    @property
    def is_due(self) -> bool:
        """Whether the machine has been started anew since journals were written here."""
        if not self._boot_id.exists():
            return False
        return self._mark.exists() and self._mark.read_text() != self._boot_id.read_text()

    def remember(self) -> None:
        """Note that this start of the machine needs no survey, or has had it."""
        if self._boot_id.exists():
            self._mark.write_text(self._boot_id.read_text())

    async def run(self) -> int:
        """Find what is damaged and make it known; return how many records are lost."""
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
        except (Corrupt, MissingJournal):
            return False
        return rewrite(data, expect_row(partition, row)).damage is None


def _is_in_journal(row: Row) -> bool:
    # A store has its objects on disk when it says so; entries are the cluster log's matter.
    return row.object_id > 0 and not is_stored(row.object_id)
