"""Cache eviction with two queues, so that one long scan does not evict hot blocks.

A new block goes to probation. It moves to the protected part when more than twice its bytes have
been served from it. Reading a block once, in steps of any size, cannot cause that, even though a
reader requests again the batch that did not fit into its last response. A block that is read again
soon after its eviction goes directly to the protected part, because its key is remembered.
Probation may use free space. When there is no room, it shrinks first, down to its share.

This is the 2Q policy (Johnson and Shasha, 1994) with a stricter test for "used again".
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from rookery.wire.buffer import Buffer

_HOT_TIMES: Final = 2

Key = tuple[int, int]
"""Object id and number of the block within it."""


class CachedBlock:
    """Bytes of one block, as far as they are known to be final."""

    __slots__ = ("data", "served_bytes")

    def __init__(self, data: Buffer) -> None:
        self.data = data
        self.served_bytes = 0


class TwoQueues:
    """Blocks by key, bounded in bytes."""

    def __init__(self, max_bytes: int, probation_bytes: int, max_remembered: int) -> None:
        self._max_bytes = max_bytes
        self.probation_bytes = probation_bytes
        """The share that probation keeps when there is no room."""
        self._max_remembered = max_remembered
        self._probation: OrderedDict[Key, CachedBlock] = OrderedDict()
        self._protected: OrderedDict[Key, CachedBlock] = OrderedDict()
        self._remembered: OrderedDict[Key, None] = OrderedDict()
        self._in_probation_bytes = 0
        self.held_bytes = 0
        """Bytes of all blocks."""
        self.evicted = 0
        """Blocks evicted for lack of space."""

    def __len__(self) -> int:
        return len(self._probation) + len(self._protected)

    def __contains__(self, key: Key) -> bool:
        return key in self._probation or key in self._protected

    @property
    def protected(self) -> list[Key]:
        """The hot blocks, least recently used first."""
        return list(self._protected)

    def get(self, key: Key) -> CachedBlock | None:
        """Return a block without counting it as used."""
        return self._protected.get(key) or self._probation.get(key)

    def use(self, key: Key, size: int) -> None:
        """Count bytes served from a block, if it is still here; it becomes the most recent."""
        block = self.get(key)
        if block is None:
            return
        block.served_bytes += size
        if key in self._protected:
            self._protected.move_to_end(key)
        elif block.served_bytes > _HOT_TIMES * len(block.data):
            del self._probation[key]
            self._in_probation_bytes -= len(block.data)
            self._protected[key] = block
        else:
            self._probation.move_to_end(key)

    def put(self, key: Key, block: CachedBlock) -> None:
        """Add a block, or a longer version of one, and evict others if there is no room."""
        old = self.get(key)
        block.served_bytes = old.served_bytes if old else 0
        known = key in self._protected or key in self._remembered
        self._remembered.pop(key, None)
        self.remove(key)
        if known:
            self._protected[key] = block
        else:
            self._probation[key] = block
            self._in_probation_bytes += len(block.data)
        self.held_bytes += len(block.data)
        while self.held_bytes > self._max_bytes:
            self._evict()

    def remove(self, key: Key) -> None:
        """Drop a block, if it is here."""
        block = self._probation.pop(key, None)
        if block is not None:
            self._in_probation_bytes -= len(block.data)
        else:
            block = self._protected.pop(key, None)
        if block is not None:
            self.held_bytes -= len(block.data)

    def remove_all(self, object_id: int) -> None:
        """Drop every block of an object, and the remembered keys."""
        # A scan of all keys: objects are removed rarely, but blocks change all the time.
        for key in [*self._probation, *self._protected]:
            if key[0] == object_id:
                self.remove(key)
        for key in [key for key in self._remembered if key[0] == object_id]:
            del self._remembered[key]

    def _evict(self) -> None:
        over = self._in_probation_bytes > self.probation_bytes
        if self._probation and (over or not self._protected):
            key, block = self._probation.popitem(last=False)
            self._in_probation_bytes -= len(block.data)
            self._remember(key)
        else:
            key, block = self._protected.popitem(last=False)
        self.held_bytes -= len(block.data)
        self.evicted += 1

    def _remember(self, key: Key) -> None:
        self._remembered[key] = None
        if len(self._remembered) > self._max_remembered:
            self._remembered.popitem(last=False)
