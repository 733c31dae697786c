"""Virtual partitions: the arithmetic that maps them to physical partitions and offset ranges.

A topic of P physical partitions is shown as V virtual ones. C = V / P virtual partitions share a
physical one, each in a *slot* of its own. The seed of this design calls a slot a virtual group.

    modulo   physical = virtual mod P    slot = virtual div P
    block    physical = virtual div C    slot = virtual mod C

Each slot has a range of R offsets: physical offset = slot x R + virtual offset. A Kafka broker
numbers offsets without gaps instead, so the proxy uses the ranges only as limits.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from rookery.errors import ApiError, ConfigError, ErrorCode

DEFAULT_OFFSET_RANGE: Final = 2**40
MIN_OFFSET_RANGE: Final = 2**20
MAX_SLOTS: Final = 254
"""The most virtual partitions of one physical partition: tags are 1 to 255, one is reserved."""
NO_OFFSET: Final = -1
"""Stands for no offset; it is the same in both spaces."""
_MAX_PARTITIONS: Final = 2**31 - 1
_MAX_OFFSETS: Final = 2**63


class PartitionLayout(Enum):
    """How virtual partitions are laid out over physical ones."""

    MODULO = "modulo"
    """Keeps keys in their physical partition when a topic becomes virtual."""
    BLOCK = "block"
    """Neighbouring partitions share a physical one, so that range assignment reads few."""


class PhysicalMapping(NamedTuple):
    """The place of a virtual partition."""

    physical_partition: int
    virtual_group: int
    """The slot."""


class PhysicalOffsetMapping(NamedTuple):
    """The place of an offset of a virtual partition."""

    physical_partition: int
    physical_offset: int
    virtual_group: int


class VirtualMapping(NamedTuple):
    """The virtual partition and offset at a physical place."""

    virtual_partition: int
    virtual_offset: int


class NegativePartitionError(ApiError):
    """A partition index below zero."""

    def __init__(self, partition: int) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {partition} is negative")


class PartitionOutOfRangeError(ApiError):
    """A partition index that the topic does not have."""

    def __init__(self, partition: int, setting: str, count: int) -> None:
        super().__init__(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"there is no partition {partition}: {setting} is {count}",
        )


class NegativeOffsetError(ApiError):
    """An offset below zero."""

    def __init__(self, offset: int) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is negative")


class OffsetOverflowError(ApiError):
    """An offset beyond the range of its partition."""

    def __init__(self, offset: int, limit: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is not below {limit}, the limit that offset_range sets",
        )


class PartitionRemapper:
    """Maps the virtual partitions of one topic."""

    __slots__ = ("layout", "offset_range", "physical_partitions", "slots", "virtual_partitions")

    def __init__(
        self,
        virtual_partitions: int,
        physical_partitions: int,
        offset_range: int = DEFAULT_OFFSET_RANGE,
        layout: PartitionLayout = PartitionLayout.MODULO,
    ) -> None:
        """Check the sizes.

        Raises:
            ConfigError: they contradict each other; its name is that of the setting.
        """
        if not 1 <= physical_partitions <= _MAX_PARTITIONS:
            raise ConfigError(f"{physical_partitions} is not at least 1", name=_PHYSICAL)
        if not physical_partitions <= virtual_partitions <= _MAX_PARTITIONS:
            raise ConfigError(
                f"{virtual_partitions} is not at least {_PHYSICAL}, {physical_partitions}",
                name=_VIRTUAL,
            )
        slots, rest = divmod(virtual_partitions, physical_partitions)
        if rest:
            raise ConfigError(
                f"{virtual_partitions} is not a multiple of {_PHYSICAL}, {physical_partitions}",
                name=_VIRTUAL,
            )
        if slots > MAX_SLOTS:
            raise ConfigError(
                f"{virtual_partitions} is more than {MAX_SLOTS} times {_PHYSICAL}, "
                f"{physical_partitions}",
                name=_VIRTUAL,
            )
        if not MIN_OFFSET_RANGE <= offset_range <= _MAX_OFFSETS // slots:
            raise ConfigError(
                f"{offset_range} is not between {MIN_OFFSET_RANGE} and {_MAX_OFFSETS // slots}",
                name="offset_range",
            )
        self.virtual_partitions = virtual_partitions
        self.physical_partitions = physical_partitions
        self.offset_range = offset_range
        self.layout = layout
        self.slots = slots
        """How many virtual partitions share a physical one: the compression ratio."""

    def virtual_to_physical(self, virtual_partition: int) -> PhysicalMapping:
        """Return the place of a virtual partition.

        Raises:
            NegativePartitionError: it is negative.
            PartitionOutOfRangeError: the topic does not have it.
        """
        _check_partition(virtual_partition, _VIRTUAL, self.virtual_partitions)
        if self.layout is PartitionLayout.MODULO:
            slot, physical = divmod(virtual_partition, self.physical_partitions)
        else:
            physical, slot = divmod(virtual_partition, self.slots)
        return PhysicalMapping(physical, slot)

    def virtual_to_physical_offset(
        self, virtual_partition: int, virtual_offset: int
    ) -> PhysicalOffsetMapping:
        """Return the place of an offset; `NO_OFFSET` stays as it is.

        Raises:
            NegativePartitionError, PartitionOutOfRangeError: as above.
            NegativeOffsetError: the offset is negative.
            OffsetOverflowError: the offset is beyond the range.
        """
        physical, slot = self.virtual_to_physical(virtual_partition)
        if virtual_offset == NO_OFFSET:
            return PhysicalOffsetMapping(physical, NO_OFFSET, slot)
        _check_offset(virtual_offset, self.offset_range)
        return PhysicalOffsetMapping(physical, slot * self.offset_range + virtual_offset, slot)

    def physical_to_virtual(self, physical_partition: int, physical_offset: int) -> VirtualMapping:
        """Return the virtual partition and offset at a physical place.

        Raises:
            NegativePartitionError, PartitionOutOfRangeError: there is no such partition.
            NegativeOffsetError: the offset is negative.
            OffsetOverflowError: the offset is beyond the range of the last slot.
        """
        _check_partition(physical_partition, _PHYSICAL, self.physical_partitions)
        _check_offset(physical_offset, self.slots * self.offset_range)
        slot, offset = divmod(physical_offset, self.offset_range)
        return VirtualMapping(self.virtual_at(physical_partition, slot), offset)

    def offset_belongs_to_virtual(
        self, physical_partition: int, physical_offset: int, virtual_partition: int
    ) -> bool:
        """Return whether a physical offset is in the range of a virtual partition."""
        mapping = self.physical_to_virtual(physical_partition, physical_offset)
        return mapping.virtual_partition == virtual_partition

    def virtual_partitions_for_physical(self, physical_partition: int) -> list[int]:
        """Return the virtual partitions of a physical one, in the order of their slots."""
        _check_partition(physical_partition, _PHYSICAL, self.physical_partitions)
        return [self.virtual_at(physical_partition, slot) for slot in range(self.slots)]

    def get_offset_range_for_virtual(self, virtual_partition: int) -> tuple[int, int]:
        """Return the first and last physical offset of a virtual partition."""
        start = self.virtual_to_physical(virtual_partition).virtual_group * self.offset_range
        return start, start + self.offset_range - 1

    def virtual_at(self, physical_partition: int, slot: int) -> int:
        """Return the virtual partition in a slot of a physical one; both must exist."""
        if self.layout is PartitionLayout.MODULO:
            return slot * self.physical_partitions + physical_partition
        return physical_partition * self.slots + slot


_VIRTUAL: Final = "virtual_partitions"
_PHYSICAL: Final = "physical_partitions"


def _check_partition(partition: int, setting: str, count: int) -> None:
    if partition < 0:
        raise NegativePartitionError(partition)
    if partition >= count:
        raise PartitionOutOfRangeError(partition, setting, count)


def _check_offset(offset: int, limit: int) -> None:
    if offset < 0:
        raise NegativeOffsetError(offset)
    if offset >= limit:
        raise OffsetOverflowError(offset, limit)
