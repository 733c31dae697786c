"""Reads that do not fail because bytes were moved meanwhile: barrier, and plan again.

A second failure is a real one. Who is told of it can do nothing but look: so it names all that is
known, and says what to do.
"""

from __future__ import annotations

from typing import Final

from rookery import metrics
from rookery.cluster.replica import Replica
from rookery.cluster.state.partition import Partition
from rookery.errors import Corrupt, Error
from rookery.log.files import Missing
from rookery.log.reader import Reader
from rookery.log.runs import FAR
from rookery.log.tail import Key, Slice

_LOST: Final = metrics.counters(
    "rookery_log_reads_lost_total",
    "Reads of records whose bytes are missing or damaged, although the cluster log names them.",
    ("cause",),
)


class SureReader:
    """Reads by the newest state before it gives up."""

    def __init__(self, reader: Reader, replica: Replica) -> None:
        self._reader = reader
        self._replica = replica

    async def read(
        self,
        key: Key,
        partition: Partition,
        offset: int,
        max_bytes: int,
        *,
        whole_first: bool = True,
        until: int = FAR,
    ) -> Slice | None:
        """Return what `Reader.read` does; None if the offset is no longer in the log.

        Raises:
            Corrupt: the bytes are damaged, or are not where the cluster log says.
            Unavailable: the disk, the store or the cluster log cannot be read.
        """
        read = self._reader.read
        try:
            return await read(
                key, partition, offset, max_bytes, whole_first=whole_first, until=until
            )
        except Error:
            await self._replica.barrier()
        now = self._replica.state.topics.partition(*key)
        if now is None or now.log_start > offset:
            return None
        try:
            return await read(key, now, offset, max_bytes, whole_first=whole_first, until=until)
        except Missing as error:
            _LOST.labels("missing").inc()
            raise Corrupt(self._text(key, offset, error)) from error
        except Corrupt as error:
            _LOST.labels("damaged").inc()
            raise Corrupt(self._text(key, offset, error)) from error

    def _text(self, key: Key, offset: int, error: Error) -> str:
        topic = self._replica.state.topics.by_id.get(key[0])
        name = topic.name if topic is not None else key[0].hex()
        return (
            f"topic {name} partition {key[1]} offset {offset}: {self._reader.describe(error)}; "
            "rookery fsck tells what else is missing"
        )
