"""A consumer group's members, epochs and assignment (KIP-848), and the effects of changes.

    change ──► epoch + 1 ──► target assignment of that epoch ──► each member goes there by itself

`machine.py` documents the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rookery.broker.coordination.machine import TopicInfo, TopicLookup
from rookery.broker.groups.consumer.assign import (
    ASSIGNORS,
    AssignedMember,
    Place,
    Places,
    choose_assignor,
)
from rookery.broker.groups.consumer.change import GroupChange, GroupParts, KeptState, merge
from rookery.broker.groups.consumer.member import AWAY, GroupMember
from rookery.broker.groups.consumer.persistence import (
    ConsumerGroupBody,
    KeptTopic,
    from_member,
    read_body,
    to_member,
    to_places,
    write_body,
)
from rookery.broker.groups.consumer.reconcile import NONE, MemberTarget, reconcile
from rookery.broker.groups.consumer.subscriptions import Subscriptions
from rookery.broker.groups.consumer.timeouts import MemberTimeouts
from rookery.broker.groups.settings import ClassicSettings, ConsumerSettings
from rookery.errors import ApiError, ErrorCode


class ConsumerGroup:
    """The state of one group."""

    def __init__(
        self,
        group_id: str,
        settings: ConsumerSettings,
        epoch: int = 0,
        classic: ClassicSettings | None = None,
    ) -> None:
        self.group_id = group_id
        self.settings = settings
        self.classic = classic or ClassicSettings()
        """The limits for members that use the classic protocol."""
        self.epoch = epoch
        self.target_epoch = epoch
        self.assignor = next(iter(ASSIGNORS))
        self.members: dict[str, GroupMember] = {}
        self.static: dict[str, str] = {}
        """Member ids by group.instance.id."""
        self.target: dict[str, Places] = {}
        self.subscriptions = Subscriptions()
        self.timeouts = MemberTimeouts()
        self.is_dirty = False
        """Whether a change must be persisted before any response is sent."""
        self._owners: dict[Place, str] = {}
        """The owner of each partition that is not free."""
        self._kept = KeptState()

    def restore(self, body: bytes, changes: Iterable[bytes], now_ms: int) -> None:
        """Load the persisted group; all timeouts of its members start again.

        Raises:
            Corrupt: the body or one of the changes is not that of a consumer group.
        """
        kept = read_body(body)
        merge(kept, changes)
        self.epoch, self.target_epoch = kept.epoch, kept.target_epoch
        self.assignor = kept.assignor
        self.subscriptions.topics = {
            topic.name: TopicInfo(topic.topic_id, topic.partitions) for topic in kept.topics
        }
        for kept_member in kept.members:
            member = to_member(kept_member)
            self.seat(member)
            self.target[member.member_id] = to_places(kept_member.target)
            self.touch(member, now_ms)
            if member.holding.revoked:
                self.timeouts.await_revocation(member, now_ms)
        self._kept.note(self._parts())

    def take_change(self) -> bytes:
        """Return the changes since the last persist; empty if the whole group must be persisted."""
        change = GroupChange(
            epoch=self.epoch,
            target_epoch=self.target_epoch,
            assignor=self.assignor,
            topics=self._encode_topics(),
            removed=[],
            members=[],
            steps=[],
        )
        return self._kept.write_change(change, self._parts())

    def _parts(self) -> GroupParts:
        return GroupParts(self.members, self.target, self.subscriptions.topics)

    def _encode_topics(self) -> list[KeptTopic]:
        return [
            KeptTopic(topic_id=topic.id, name=name, partitions=topic.partitions)
            for name, topic in self.subscriptions.topics.items()
        ]

    def body(self) -> bytes:
        """Return the encoded state of the group."""
        return write_body(
            ConsumerGroupBody(
                group_id=self.group_id,
                epoch=self.epoch,
                target_epoch=self.target_epoch,
                assignor=self.assignor,
                topics=self._encode_topics(),
                members=[
                    from_member(member, self.target.get(member.member_id, NONE))
                    for member in self.members.values()
                ],
            )
        )

    # -- members -----------------------------------------------------------------------------

    @property
    def classic_members(self) -> list[GroupMember]:
        """The members that use the classic protocol."""
        return [member for member in self.members.values() if member.classic is not None]

    @property
    def is_classic(self) -> bool:
        """Whether the group has members, and all of them use the classic protocol."""
        return bool(self.members) and all(member.classic for member in self.members.values())

    @property
    def topic_ids(self) -> dict[str, bytes]:
        """The ids of the topics that members subscribe to, by name."""
        return {name: topic.id for name, topic in self.subscriptions.topics.items()}

    def add(self, member: GroupMember) -> None:
        """Add a new member."""
        self.seat(member)
        self.begin_epoch()

    def seat(self, member: GroupMember) -> None:
        """Register a member with its partitions; the caller handles the consequences."""
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        self._owners.update(dict.fromkeys(member.holding.all_places, member.member_id))

    def remove(self, member: GroupMember) -> None:
        """Remove a member; its partitions become free and are assigned to others."""
        self._unseat(member)
        self.target.pop(member.member_id, None)
        self.begin_epoch()

    def replace(self, member: GroupMember, successor: GroupMember) -> None:
        """Replace an absent member by another one, which inherits its target."""
        self._unseat(member)
        self.seat(successor)
        self.target[successor.member_id] = self.target.pop(member.member_id, NONE)
        self.is_dirty = True

    def _unseat(self, member: GroupMember) -> None:
        self._release(member.holding.all_places)
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self.static[member.instance_id]
        self.timeouts.end_all(member)

    def identify(self, member_id: str, instance_id: str | None) -> GroupMember:
        """Return the member with this id and instance id.

        Raises:
            ApiError: FENCED_INSTANCE_ID or UNKNOWN_MEMBER_ID.
        """
        holder = self.static.get(instance_id, member_id) if instance_id is not None else member_id
        if holder != member_id:
            raise ApiError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"instance id {instance_id!r} is in use by member {holder!r}",
            )
        member = self.members.get(member_id)
        if member is None or instance_id not in (None, member.instance_id):
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"group {self.group_id!r} has no member {member_id!r}",
            )
        return member

    def send_away(self, member: GroupMember) -> None:
        """Mark a static member as absent: it owns nothing, but its target stays reserved."""
        self._release(member.holding.all_places)
        self.timeouts.end_revocation(member)
        member.go_away()
        self.is_dirty = True

    def touch(self, member: GroupMember, now_ms: int) -> None:
        """Restart a member's session timeout."""
        terms = member.classic or self.settings
        self.timeouts.restart_session(member, terms.session_timeout_ms, now_ms)

    def expire(self, now_ms: int) -> None:
        """Remove members whose session or another deadline has expired."""
        for member_id in self.timeouts.take(now_ms):
            member = self.members.get(member_id)
            if member is not None:
                self.remove(member)

    # -- assignment --------------------------------------------------------------------------

    def begin_epoch(self) -> None:
        """Begin a new epoch, unless the current one has no target assignment yet."""
        if self.epoch == self.target_epoch:
            self.epoch += 1
        self.is_dirty = True

    def refresh(self, topics: TopicLookup, *, is_changed: bool, is_stale: bool = False) -> None:
        """Check the cluster's topics and the members' subscriptions; reassign if necessary.

        Args:
            topics: the cluster's topics.
            is_changed: whether a subscription has changed, which requires a new assignment.
            is_stale: whether a subscription must be resolved again.
        """
        if is_changed or is_stale or not self.subscriptions.is_current(topics):
            is_changed |= self.subscriptions.refresh(self.members.values(), topics)
            if is_changed:
                self.begin_epoch()
        if self.epoch > self.target_epoch:
            self._assign()

    def _assign(self) -> None:
        self.assignor = choose_assignor(member.assignor for member in self.members.values())
        subscriptions = self.subscriptions
        self.target = ASSIGNORS[self.assignor](
            {topic.id: topic.partitions for topic in subscriptions.topics.values()},
            {
                key: AssignedMember(subscriptions.ids_of(member), self.target.get(key, NONE))
                for key, member in self.members.items()
            },
        )
        self.target_epoch = self.epoch
        self.is_dirty = True

    def reconcile(self, member: GroupMember, owned: Places | None, now_ms: int) -> bool:
        """Take a member's next step; return whether its assignment changed."""
        before = member.holding
        key = member.member_id
        target = MemberTarget(self.target_epoch, self.target.get(key, NONE))
        after = reconcile(before, target, owned, lambda place: self._owners.get(place, key) == key)
        if after == before:
            return False
        self._release(before.all_places - after.all_places)
        self._owners.update(dict.fromkeys(after.assigned - before.all_places, key))
        member.hold(after)
        self.is_dirty = True
        if not after.revoked:
            self.timeouts.end_revocation(member)
        elif after.revoked != before.revoked:
            self.timeouts.await_revocation(member, now_ms)
        return after.assigned != before.assigned

    def is_settled(self, member: GroupMember) -> bool:
        """Return whether a member has reached its target."""
        has_all = not member.holding.revoked and not member.holding.is_waiting
        return member.epoch == self.epoch == self.target_epoch and has_all

    def is_next_free(self, member: GroupMember) -> bool:
        """Return whether all partitions that a member waits for are free now."""
        wanted = self.target.get(member.member_id, NONE) - member.holding.assigned
        return not any(place in self._owners for place in wanted)

    def find_unsettled(self) -> Iterator[GroupMember]:
        """Return the members that have not reached their target, without absent ones."""
        present = (member for member in self.members.values() if member.epoch != AWAY)
        return (member for member in present if not self.is_settled(member))

    def _release(self, places: Places) -> None:
        for place in places:
            del self._owners[place]
