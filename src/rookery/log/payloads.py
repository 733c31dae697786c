"""Reads all that rows point to, payloads of entries too, for whoever rewrites them."""

from __future__ import annotations

from rookery.cluster.port import ClusterLog
from rookery.log.entries import Entries
from rookery.log.refine import Read
from rookery.records.kernel import Buffer


class EntryReader:
    """Reads payloads of entries itself, and other objects by another reader."""

    def __init__(self, cluster_log: ClusterLog, objects: Read) -> None:
        """Read nothing yet.

        Args:
            cluster_log: where the payloads are.
            objects: reads journals and objects in the store.
        """
        self._entries = Entries(cluster_log)
        self._objects = objects

    async def read(self, object_id: int, position: int, size: int) -> Buffer:
        """Return that many bytes from the position on, fewer only where the object ends.

        Raises:
            Missing: the entry was trimmed, or the object deleted.
            Corrupt: the entry is damaged.
            Unavailable: the cluster log or the store is out of reach.
        """
        if object_id > 0:
            return await self._objects(object_id, position, size)
        payload = await self._entries.payload(-object_id)
        return bytes(payload[position : position + size])
