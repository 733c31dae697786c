"""Consumer groups with their members, offsets and lag."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from rookery.client.client import Client
from rookery.client.groups import GroupListing
from rookery.client.members import GroupDescription
from rookery.model.offset import LATEST, CommittedOffset
from rookery.model.partition import TopicPartition


@dataclass(frozen=True, slots=True)
class MemberOverview:
    """A member of a group."""

    member: str
    instance: str | None
    """The group.instance.id of a static member."""
    client: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """A group's position and lag in one partition."""

    topic: str
    partition: int
    offset: int | None
    """The next offset to read; None if the group has committed none."""
    end: int
    """The offset of the partition's next record."""
    member: str | None
    """The member that reads the partition."""
    metadata: str

    @property
    def lag(self) -> int | None:
        """The number of records still to read; None without a commit."""
        return None if self.offset is None else max(0, self.end - self.offset)


@dataclass(frozen=True, slots=True)
class GroupOverview:
    """A group, its members, and its lag in every partition that it is assigned or has committed."""

    group: str
    state: str
    kind: str
    """classic or consumer."""
    assignor: str
    members: tuple[MemberOverview, ...]
    offsets: tuple[PartitionLag, ...]

    @property
    def lag(self) -> int:
        """The sum over all partitions."""
        return sum(offset.lag or 0 for offset in self.offsets)


async def list_groups(client: Client, states: Collection[str] = ()) -> tuple[GroupListing, ...]:
    """Return the groups in one of these states (case-insensitive), or all; sorted by name."""
    wanted = {state.lower() for state in states}
    listed = await client.groups.list_all()
    return tuple(group for group in listed if not wanted or group.state.lower() in wanted)


async def describe_groups(client: Client, names: Iterable[str]) -> tuple[GroupOverview, ...]:
    """Return groups in the order of the given names; a repeated name counts once.

    Raises:
        ApiError: GROUP_ID_NOT_FOUND.
    """
    return tuple([await _describe(client, name) for name in dict.fromkeys(names)])


async def _describe(client: Client, name: str) -> GroupOverview:
    group = await client.groups.describe(name)
    committed = await client.groups.committed_offsets(name)
    readers = {place: member.member_id for member in group.members for place in member.partitions}
    places = sorted({*committed, *readers})
    ends = await client.offsets.find(dict.fromkeys(places, LATEST))
    return GroupOverview(
        group=name,
        state=group.state,
        kind=group.kind,
        assignor=group.assignor,
        members=_members(group),
        offsets=tuple(
            _lag(place, committed.get(place), ends[place].offset, readers.get(place))
            for place in places
        ),
    )


def _lag(
    place: TopicPartition, committed: CommittedOffset | None, end: int, member: str | None
) -> PartitionLag:
    return PartitionLag(
        topic=place.topic,
        partition=place.partition,
        offset=committed.offset if committed else None,
        end=end,
        member=member,
        metadata=committed.metadata if committed else "",
    )


def _members(group: GroupDescription) -> tuple[MemberOverview, ...]:
    return tuple(
        MemberOverview(
            member=member.member_id,
            instance=member.instance_id,
            client=member.client_id,
            host=member.host.lstrip("/"),
            partitions=member.partitions,
        )
        for member in group.members
    )
