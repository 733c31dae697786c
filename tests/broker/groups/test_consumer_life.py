"""Consumer groups under anything that can happen, in any order, with a hand-moved clock."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rookery.broker.coordination.machine import Tick
from rookery.errors import ErrorCode
from tests.broker.groups.beats import Cluster, Group, Reader

readers = st.integers(0, 2)
topics = st.sampled_from(["a", "b", "c"])
subscriptions = st.one_of(
    st.builds(
        lambda names: {"subscribed_topic_names": names, "subscribed_topic_regex": ""},
        st.lists(topics, unique=True, max_size=3),
    ),
    st.sampled_from(["a|b", ".*", "c"]).map(lambda text: {"subscribed_topic_regex": text}),
)


class Life(RuleBasedStateMachine):
    """Three readers, of whom one is static, and a coordinator that may be replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(a=3, b=2)
        self.group = Group(self.cluster)
        self.readers = [
            Reader(
                self.group,
                f"reader-{at}",
                subscribed_topic_names=["a", "b"],
                instance_id="static" if at == 2 else None,
            )
            for at in range(3)
        ]
        self.names = 3

    @rule(who=readers, is_lost=st.booleans())
    def beat(self, who: int, is_lost: bool) -> None:
        code = self.readers[who].beat(is_lost=is_lost)
        assert code in (
            ErrorCode.NONE,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNRELEASED_INSTANCE_ID,
        )

    @rule(before=st.sets(readers), after=st.sets(readers))
    def go_round(self, before: set[int], after: set[int]) -> None:
        """All send heartbeats, and some have applied their assignment."""
        for who, reader in enumerate(self.readers):
            if who in before:
                reader.reconcile()
            reader.beat()
            if who in after:
                reader.reconcile()

    @rule(who=readers)
    def reconcile(self, who: int) -> None:
        self.readers[who].reconcile()

    @rule(who=readers, wants=subscriptions)
    def subscribe(self, who: int, wants: dict[str, object]) -> None:
        self.readers[who].wants, self.readers[who].is_full = wants, True

    @rule(who=readers)
    def leave(self, who: int) -> None:
        self.readers[who].leave()

    @rule(is_new=st.booleans())
    def restart(self, is_new: bool) -> None:
        """A static member goes, and is back with its next heartbeat, under a new id or not."""
        self.readers[2].leave(-2)
        if is_new:
            self.names += 1
            self.readers[2].member_id = f"reader-{self.names}"

    @rule(who=readers)
    def crash(self, who: int) -> None:
        """A process is killed, and a new one takes its place."""
        self.names += 1
        self.readers[who].forget()
        self.readers[who].member_id = f"reader-{self.names}"

    @rule(ms=st.sampled_from([1, 9_000, 12_000, 50_000]))
    def pass_time(self, ms: int) -> None:
        self.group.now_ms += ms
        self._expire()

    def _expire(self) -> None:
        due = self.group.machine.deadline_ms
        if due is not None and due <= self.group.now_ms:
            self.group.on(Tick())
            self._fence()

    def _fence(self) -> None:
        """Readers notice by their own clocks that they are too late, and let everything go."""
        known = {member.member.member_id for member in self.group.machine.description().members}
        for reader in self.readers:
            if reader.member_id not in known:
                reader.forget()

    @rule(name=topics, partitions=st.integers(1, 4))
    def change_topics(self, name: str, partitions: int) -> None:
        topic = self.cluster.find(name)
        if topic is None:
            self.cluster.create(name, partitions)
        elif topic.partitions < partitions:
            self.cluster.grow(name, partitions)
        elif partitions == 1:
            self.cluster.delete(name)

    @rule()
    def fail_over(self) -> None:
        self.group.fail_over()

    @rule()
    def settle(self) -> None:
        """When all beat and nothing changes, all come to the group's epoch and read everything."""
        for turn in range(20):
            for reader in self.readers:
                reader.beat()
                reader.reconcile()
                reader.beat()
            if turn == 4:  # the killed members have been expired by now
                self._let_the_dead_go()
        description = self.group.machine.description()
        assert description.state == "Stable"
        assert {reader.epoch for reader in self.readers} == {description.epoch}
        wanted = {name for reader in self.readers for name in self._wanted(reader)}
        owned = [place for reader in self.readers for place in reader.owned]
        assert len(owned) == len(set(owned))
        assert frozenset(owned) == self.cluster.places(*wanted)
        persists = self.group.persists
        for reader in self.readers:
            assert reader.beat() is ErrorCode.NONE
        assert self.group.persists == persists, "a heartbeat that changes nothing is not kept"

    def _let_the_dead_go(self) -> None:
        for _ in range(5):
            self.group.now_ms += 10_000
            for reader in self.readers:
                reader.beat()
                reader.reconcile()
            self._expire()

    def _wanted(self, reader: Reader) -> list[str]:
        regex = reader.wants.get("subscribed_topic_regex") or ""
        names = list(reader.wants.get("subscribed_topic_names") or [])
        return names + {"": [], "a|b": ["a", "b"], ".*": ["a", "b", "c"], "c": ["c"]}[regex]

    @invariant()
    def nothing_is_owned_twice(self) -> None:
        owned = [place for reader in self.readers for place in reader.owned]
        assert len(owned) == len(set(owned))

    @invariant()
    def what_is_kept_is_all_there_is(self) -> None:
        if self.group.kept is not None:
            before = self.group.machine.description()
            again = type(self.group.machine).load(
                "readers", self.group.kept, self.group.settings, 0
            )
            after = again.description()
            assert after.epoch == before.epoch
            assert {member.member.member_id: member.member.holding for member in after.members} == {
                member.member.member_id: member.member.holding for member in before.members
            }


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
