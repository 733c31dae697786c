"""Reads any partition of a directory; what is damaged is told by the name of its file."""

from __future__ import annotations

import re
from typing import Final

from rookery.cluster.state.partition import Partition
from rookery.errors import Corrupt
from rookery.log.reader import Reader
from rookery.log.runs import FAR
from rookery.log.tail import Key, Slice, Tail
from rookery.logdir.serving.clusterlog import DirectoryLog
from rookery.logdir.serving.segmentfiles import SegmentFiles

_OBJECT: Final = re.compile(r"object (\d+)")


class DirectoryReader(Reader):
    """A reader of `.log` files."""

    def __init__(self, cluster_log: DirectoryLog, files: SegmentFiles, tail: Tail) -> None:
        super().__init__(cluster_log, files, tail, files.read)
        self._files = files

    async def read(
        self,
        key: Key,
        partition: Partition,
        offset: int,
        max_bytes: int,
        *,
        whole_first: bool = True,
        until: int = FAR,
    ) -> Slice:
        """Return whole batches, as every reader does.

        Raises:
            Corrupt, Conflict, Unavailable: as `Reader.read`; a file is called by its name.
        """
        try:
            return await super().read(
                key, partition, offset, max_bytes, whole_first=whole_first, until=until
            )
        except Corrupt as error:
            named = _OBJECT.sub(lambda found: self._files.name(int(found[1])), str(error))
            raise Corrupt(named) from error
