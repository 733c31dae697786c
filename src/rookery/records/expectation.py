"""The log's expectations of stored batches, before they are read: for `records/scan`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

EpochAt = Callable[[int], int]
"""Returns the leader epoch in which an offset was written."""

FAR: Final = (1 << 63) - 1
"""Higher than every offset and position."""


class OffsetRule(Enum):
    """How batches get their offsets, and which offsets may be missing."""

    ASSIGNED = auto()
    """The log assigns consecutive offsets: producers send batches without offsets."""
    DENSE = auto()
    """The batches carry offsets without gaps."""
    SPARSE = auto()
    """The batches carry offsets in ascending order; compaction may have removed some."""
    UNCHECKED = auto()
    """The batches carry offsets that are not checked."""


class ExtentLike(Protocol):
    """A byte range of an object, and the offsets of its batches; a row of the state is one."""

    @property
    def base_offset(self) -> int:
        """The first offset; a lower bound if offsets may be missing."""

    @property
    def end_offset(self) -> int:
        """One more than the last offset."""

    @property
    def position(self) -> int:
        """The first byte."""

    @property
    def size(self) -> int:
        """The number of bytes; a batch must end where they end."""


class ExpectedExtent(NamedTuple):
    """An extent that is not a row."""

    base_offset: int
    end_offset: int
    position: int
    size: int


class Expectation(NamedTuple):
    """The log's expectations of the batches in a byte range."""

    extents: Sequence[ExtentLike]
    """Adjacent extents; the bytes begin in the first one."""
    rule: OffsetRule
    position: int
    """The position of the first byte in its object."""
    base_offset: int
    """The offset of the first batch; a lower bound if offsets may be missing."""
    is_exact: bool = True
    """Whether the first batch must have the base offset; if sparse, also that of every extent."""
    epoch_at: EpochAt | None = None
    """Checks the leader epochs that batches carry; None leaves them unchecked."""
    crcs: Sequence[int] = ()
    """The CRC-32C of every extent, if they are known."""
    is_covered: bool = False
    """Whether batch CRCs are not checked: extents have their own, or the caller checks."""
    is_atomic: bool = False
    """Whether damage invalidates its whole extent, whose offsets may come from the same bytes."""

    @classmethod
    def of(cls, extent: ExtentLike, rule: OffsetRule) -> Expectation:
        """Expect the batches of one extent, from its first byte on."""
        is_exact = rule is not OffsetRule.SPARSE
        return cls((extent,), rule, extent.position, extent.base_offset, is_exact)

    @property
    def end(self) -> int:
        """The position after the last extent."""
        last = self.extents[-1]
        return last.position + last.size

    def extent_at(self, position: int) -> int:
        """Return the index of the extent that contains a position, or of the last one."""
        for index, extent in enumerate(self.extents):
            if position < extent.position + extent.size:
                return index
        return len(self.extents) - 1

    def start_at(self, position: int, base_offset: int, *, is_exact: bool) -> Expectation:
        """Return the same expectation for the bytes from a later position on."""
        index = self.extent_at(position)
        return self._replace(
            extents=self.extents[index:],
            position=position,
            base_offset=base_offset,
            is_exact=is_exact,
            crcs=self.crcs[index:],
        )
