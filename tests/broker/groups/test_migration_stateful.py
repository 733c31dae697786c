"""Members of both protocols come, go and fall silent in any order: no partition has two owners."""

from __future__ import annotations

from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rookery.broker.groups.settings import ConsumerSettings
from tests.broker.groups.beats import Cluster, Reader
from tests.broker.groups.mixing import COOPERATIVE, EAGER, ClassicReader, Mixed

picks = st.integers(0, 1_000)
_SESSION_MS = 8_000
_STEP_MS = 500


class Migration(RuleBasedStateMachine):
    """A group, and its members as they see themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.group = Mixed(Cluster(t=5), ConsumerSettings(session_timeout_ms=_SESSION_MS))
        self.assignor = EAGER
        self.members: list[ClassicReader | Reader] = []
        self._numbers = count()

    @initialize(assignor=st.sampled_from([EAGER, COOPERATIVE]))
    def begin(self, assignor: str) -> None:
        self.assignor = assignor

    @precondition(lambda self: len(self.members) < 4)
    @rule()
    def classic_comes(self) -> None:
        self.members.append(ClassicReader(self.group, "t", assignor=self.assignor))

    @precondition(lambda self: len(self.members) < 4)
    @rule()
    def consumer_comes(self) -> None:
        reader = Reader(self.group, f"c{next(self._numbers)}", subscribed_topic_names=["t"])
        self.members.append(reader)

    @precondition(lambda self: self.members)
    @rule(which=picks, steps=st.integers(1, 4))
    def go_on(self, which: int, steps: int) -> None:
        for _ in range(steps):
            self.members[which % len(self.members)].step()
            self.check()

    @precondition(lambda self: self.members)
    @rule(which=picks)
    def leave(self, which: int) -> None:
        member = self.members.pop(which % len(self.members))
        if isinstance(member, Reader) or member.member_id:
            member.leave()

    @precondition(lambda self: self.members)
    @rule(which=picks)
    def die(self, which: int) -> None:
        """One is silent until its time is up; meanwhile the others continue."""
        del self.members[which % len(self.members)]
        for _ in range(2 * 20_000 // _STEP_MS):
            self._pass_a_moment()

    @rule()
    def fail_over(self) -> None:
        self.group.fail_over()

    @rule()
    def settle(self) -> None:
        """In the end every partition has a reader, and the readers have equal shares."""
        for _ in range(2 * 20_000 // _STEP_MS):
            self._pass_a_moment()
        if self.members:
            owned = frozenset(place for member in self.members for place in member.places())
            assert owned == self.group.cluster.places("t")
            sizes = [len(member.places()) for member in self.members]
            assert max(sizes) - min(sizes) <= 1
            assert self.group.machine.state_name == "Stable"
            is_classic = all(isinstance(member, ClassicReader) for member in self.members)
            assert self.group.kind == ("classic" if is_classic else "consumer")

    def _pass_a_moment(self) -> None:
        self.group.pass_time(_STEP_MS)
        for member in self.members:
            member.step()
            self.check()

    @invariant()
    def check(self) -> None:
        owned = [place for member in self.members for place in member.places()]
        assert len(owned) == len(set(owned)), "a partition has two owners"


Migration.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestMigration = Migration.TestCase
