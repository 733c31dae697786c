"""Random clients of a classic group, random times, and a coordinator that is lost at any moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from rookery.broker.coordination.machine import Effect, Persist
from rookery.broker.groups.classic.group import ClassicGroup, ClassicState
from rookery.broker.groups.classic.machine import ClassicGroupMachine
from rookery.broker.groups.settings import ClassicSettings
from rookery.errors import ErrorCode
from rookery.testing.clock import SeededRandom
from rookery.wire.messages.join_group import JoinGroupResponse
from rookery.wire.messages.sync_group import SyncGroupResponse
from tests.broker.groups.driving import GROUP, Driver, Token

PROTOCOLS: list[dict[str, bytes]] = [
    {"range": b"1"},
    {"range": b"1", "sticky": b"1"},
    {"sticky": b"2", "range": b"2"},
]
T = TypeVar("T")

STAGES = ["joined", "follow", "stable"]


class Client:
    """A client that follows the responses that reach it."""

    def __init__(self, name: str, *, is_static: bool, version: int) -> None:
        self.name = name
        self.instance_id = name if is_static else None
        self.version = max(version, 5) if is_static else version
        self.names = {name} if is_static else set[str]()
        """What a leader may call it: one of an old version knows a static member by its id only,
        which may be that of its predecessor by now."""
        self.member_id = ""
        self.generation = -1
        self.protocol = ""
        self.members: list[tuple[str, str]] | None = None
        """Member ids with what they stand for, if this is the leader."""
        self.held: Token | None = None

    def forget(self) -> None:
        """Start over."""
        if self.instance_id is None:
            self.names.clear()
        self.member_id, self.generation, self.members, self.held = "", -1, None, None


class Cluster(Driver):
    """A group whose coordinator may be lost while its effects are carried out."""

    def __init__(self, delay_ms: int) -> None:
        super().__init__(ClassicSettings(initial_rebalance_delay_ms=delay_ms, max_size=6))
        self.crash = ""
        self.open: set[Token] = set()
        self.crashes = 0
        self.memberships: dict[int, frozenset[str]] = {}
        self.ids: set[str] = set()
        """Of the members as they were kept last."""

    def take(self, effects: list[Effect]) -> None:
        if self.crash and effects and isinstance(effects[0], Persist):
            if self.crash == "unanswered":
                self.keep(effects[0].body)
            self.lose_coordinator()
            return
        for effect in effects:
            if isinstance(effect, Persist):
                self.keep(effect.body)
            else:
                self.open.discard(effect.token)
        super().take([effect for effect in effects if not isinstance(effect, Persist)])

    def keep(self, body: bytes) -> None:
        """Apply a persist: a generation never goes back, nor means two memberships."""
        self.persisted.append(body)
        kept = ClassicGroupMachine.load(GROUP, body, self.settings, 0)
        assert kept.epoch >= max(self.memberships, default=0)
        self.ids = {member.member_id for member in kept.description().members}
        names = frozenset(m.instance_id or m.member_id for m in kept.description().members)
        assert self.memberships.setdefault(kept.epoch, names) == names

    def lose_coordinator(self) -> None:
        """Let another coordinator take over; held requests get no answer."""
        self.crash = ""
        self.crashes += 1
        self.open.clear()
        self.restart()

    @property
    def inside(self) -> ClassicGroup:
        """What the group is made of."""
        return self.group._group


class Groups(RuleBasedStateMachine):
    """The rules of the game, and what must hold whatever is played."""

    clients = Bundle("clients")

    @initialize(
        target=clients,
        delay_ms=st.sampled_from([0, 100]),
        versions=st.lists(st.sampled_from([2, 4, -9, 9]), max_size=4),
        stage=st.sampled_from(STAGES),
    )
    def begin(self, delay_ms: int, versions: list[int], stage: str) -> Any:
        self.cluster = Cluster(delay_ms)
        self.alive: list[Client] = []
        self.waiting: dict[Token, Client] = {}
        self.crashes = 0
        self.assignments: dict[int, str] = {}
        self.past: list[tuple[str, int, str | None]] = [("nobody", 1, None)]
        self.parts = 0
        for version in versions:
            self.start(version)
        self.cooperate(stage)
        return multiple(*self.alive)

    # -- what clients do -----------------------------------------------------------------------

    @rule(target=clients, version=st.sampled_from([2, 4, -9, 9]))
    def start(self, version: int) -> Any:
        """Start a client; those of a negative version are static members."""
        if len(self.alive) >= 7:
            return multiple()
        self.parts += 1
        client = Client(f"c{self.parts}", is_static=version < 0, version=abs(version))
        self.alive.append(client)
        return client

    @rule(client=clients, offer=st.sampled_from(PROTOCOLS), is_impatient=st.booleans())
    def join(self, client: Client, offer: dict[str, bytes], is_impatient: bool) -> None:
        if client in self.alive and (client.held is None or is_impatient):
            token = self.cluster.join(
                client.member_id,
                version=client.version,
                instance_id=client.instance_id,
                protocols=offer,
                session_ms=10_000,
                rebalance_ms=30_000,
            )
            self.ask(client, token)

    @rule(client=clients, is_impatient=st.booleans())
    def sync(self, client: Client, is_impatient: bool) -> None:
        is_free = client.held is None or is_impatient
        if client in self.alive and is_free and client.generation >= 0:
            self.parts += 1
            mark = f"{client.generation}:{self.parts}:"
            parts = {key: (mark + name).encode() for key, name in client.members or []}
            token = self.cluster.sync(
                client.member_id,
                client.generation,
                parts,
                version=min(client.version, 5),
                instance_id=client.instance_id,
                protocol=("consumer", client.protocol),
            )
            self.ask(client, token)

    @rule(client=clients)
    def beat(self, client: Client) -> None:
        if client in self.alive and client.member_id:
            code = self.cluster.beat(
                client.member_id, client.generation, instance_id=client.instance_id
            )
            if code is ErrorCode.NONE:
                self.check_is_in(client.generation, client.member_id)
            assert code is not ErrorCode.FENCED_INSTANCE_ID
            if code is ErrorCode.UNKNOWN_MEMBER_ID and client.held is None:
                client.forget()

    @rule(client=consumes(clients))
    def leave(self, client: Client) -> None:
        if client in self.alive and client.member_id:
            token_of_crash = self.cluster.crashes
            try:
                self.cluster.leave((client.member_id, client.instance_id))
            except KeyError:
                assert self.cluster.crashes > token_of_crash, "a LeaveGroup was not answered"
            self.hear()
        self.alive = [other for other in self.alive if other is not client]

    @rule(client=clients)
    def hang_up(self, client: Client) -> None:
        for token in [token for token, other in self.waiting.items() if other is client]:
            self.cluster.open.discard(token)
            del self.waiting[token]
            self.cluster.lose(token)
        client.held = None
        self.hear()

    @rule(client=clients)
    def restart_client(self, client: Client) -> None:
        self.hang_up(client)
        client.forget()

    @rule(client=consumes(clients))
    def die(self, client: Client) -> None:
        self.hang_up(client)
        self.alive = [other for other in self.alive if other is not client]

    @rule(back=st.integers(1, 10))
    def haunt(self, back: int) -> None:
        """Let a zombie repeat what it once believed."""
        member_id, generation, instance_id = self.past[-min(back, len(self.past))]
        if self.cluster.group.check_commit(member_id, generation, instance_id) is ErrorCode.NONE:
            self.check_is_in(generation, member_id)
        if self.cluster.beat(member_id, generation, instance_id=instance_id) is ErrorCode.NONE:
            self.check_is_in(generation, member_id)

    @rule(stage=st.sampled_from(STAGES))
    def cooperate(self, stage: str) -> None:
        """Let every member do what it must, up to some point of a rebalance."""
        for ms in (200, 6_000, 6_000, 200):  # long enough for the dead not to be waited for
            for client in self.alive:
                if client.generation != self.cluster.group.epoch or client.members:
                    self.join(client, PROTOCOLS[1], is_impatient=False)
                self.beat(client)
            self.cluster.pass_time(ms)
            self.hear()
        for client in self.alive:
            if stage == "stable" or (stage == "follow" and client.members is None):
                self.sync(client, is_impatient=False)

    # -- what happens to them --------------------------------------------------------------------

    @rule(ms=st.sampled_from([50, 100, 5_000, 9_999, 10_000, 30_000]))
    def pass_time(self, ms: int) -> None:
        self.cluster.pass_time(ms)
        self.hear()

    @rule(how=st.sampled_from(["", "lost", "unanswered"]))
    def crash(self, how: str) -> None:
        """Lose the coordinator: now, or just before or after its next persist."""
        if how:
            self.cluster.crash = how
        else:
            self.cluster.lose_coordinator()
            self.hear()

    # -- what clients receive ---------------------------------------------------------------------

    def ask(self, client: Client, token: Token) -> None:
        client.held = token
        self.waiting[token] = client
        if token not in self.cluster.answers and self.cluster.crashes == self.crashes:
            self.cluster.open.add(token)
        self.hear()

    def hear(self) -> None:
        """Deliver responses, and broken connections, to the clients."""
        for token, client in [*self.waiting.items()]:
            answer = self.cluster.answers.get(token)
            if answer is not None:
                del self.waiting[token]
                if client.held is token:
                    client.held = None
                    self.hear_answer(client, answer)
        if self.cluster.crashes > self.crashes:
            self.crashes = self.cluster.crashes
            for client in self.waiting.values():
                client.held = None
            self.waiting.clear()

    def hear_answer(self, client: Client, answer: Any) -> None:
        if isinstance(answer, JoinGroupResponse):
            self.hear_join(client, answer)
        elif isinstance(answer, SyncGroupResponse) and answer.error_code is ErrorCode.NONE:
            self.hear_part(client, answer)
        # No two clients have the same instance id, so a fenced client was taken for another.
        assert answer.error_code is not ErrorCode.FENCED_INSTANCE_ID
        if answer.error_code is ErrorCode.UNKNOWN_MEMBER_ID:
            client.forget()

    def hear_join(self, client: Client, answer: JoinGroupResponse) -> None:
        if answer.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            client.member_id = answer.member_id
            client.names.add(answer.member_id)
        if answer.error_code is ErrorCode.NONE:
            client.generation = answer.generation_id
            client.protocol = answer.protocol_name or ""
            name = client.instance_id or answer.member_id
            self.past.append((answer.member_id, answer.generation_id, client.instance_id))
            assert name in self.cluster.memberships[answer.generation_id]
            client.members = None
            if answer.leader == answer.member_id:
                names = [(m.member_id, m.group_instance_id or m.member_id) for m in answer.members]
                client.members = names
                if client.version >= 5:
                    shown = frozenset(name for _, name in names)
                    assert shown == self.cluster.memberships[answer.generation_id]

    def hear_part(self, client: Client, answer: SyncGroupResponse) -> None:
        """Check that a generation has one assignment, and every member its own part of it."""
        generation, mark, name = answer.assignment.decode().split(":")
        assert int(generation) == client.generation
        assert name in client.names
        assert self.assignments.setdefault(client.generation, mark) == mark

    def check_is_in(self, generation: int, member_id: str) -> None:
        """Check that someone who passes for a member is one."""
        assert generation == max(self.cluster.memberships)
        assert member_id in self.cluster.ids

    # -- what always holds -------------------------------------------------------------------------

    @invariant()
    def nothing_held_is_forgotten(self) -> None:
        if hasattr(self, "cluster"):
            members = self.cluster.inside.roster.members.values()
            held = {request.token for m in members for request in (m.join, m.sync) if request}
            assert held == self.cluster.open

    @invariant()
    def what_is_counted_is_what_is_there(self) -> None:
        if hasattr(self, "cluster"):
            group = self.cluster.inside
            roster = group.roster
            members = roster.members
            assert roster.joined == sum(member.join is not None for member in members.values())
            assert roster.size_bytes == sum(member.size_bytes for member in members.values())
            assert (roster.leader in members) == bool(members)
            assert roster.static == {m.instance_id: k for k, m in members.items() if m.instance_id}
            assert group.unsynced <= members.keys()
            assert (group.state is ClassicState.EMPTY) <= (not members)
            assert group.state is ClassicState.PREPARING or not roster.joined
            for member in members.values():
                is_timed = member.member_id in group.deadlines._due
                assert is_timed or member.is_held

    def teardown(self) -> None:
        """Let all clients only send heartbeats, then nothing: no request stays held."""
        if hasattr(self, "cluster"):
            self.cluster.crash = ""
            for _ in range(25):
                self.cluster.pass_time(5_000)
                self.hear()
                for client in self.alive:
                    self.beat(client)
            assert not self.cluster.open
            self.cluster.pass_time(1_000_000)
            assert self.cluster.group.is_empty
            assert self.cluster.group.deadline_ms is None


Groups.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestGroups = Groups.TestCase


class Walk:
    """A long game: rules that bring the group on are played more often than by pure chance."""

    def __init__(self, seed: int) -> None:
        self._random = SeededRandom(seed)
        self.game = Groups()
        versions = [self.choose([2, 4, -9, 9]) for _ in range(self.choose(range(5)))]
        self.game.begin(self.choose([0, 100]), versions, self.choose(STAGES))

    def choose(self, options: Sequence[T]) -> T:
        return options[int.from_bytes(self._random.token(2), "big") % len(options)]

    def step(self) -> None:
        game = self.game
        client = self.choose(game.alive) if game.alive else None
        if client is None:
            game.start(self.choose([2, 4, -9, 9]))
        elif self.choose(range(3)):
            self.choose([self._join, self._sync, game.beat, game.restart_client, self._rare])(
                client
            )
        else:
            self._happen()
        game.nothing_held_is_forgotten()
        game.what_is_counted_is_what_is_there()

    def _join(self, client: Client) -> None:
        self.game.join(client, self.choose(PROTOCOLS), is_impatient=self.choose([False, True]))

    def _sync(self, client: Client) -> None:
        self.game.sync(client, is_impatient=self.choose([False, True]))

    def _rare(self, client: Client) -> None:
        self.choose([self.game.leave, self.game.hang_up, self.game.die])(client)

    def _happen(self) -> None:
        game = self.game
        match self.choose(range(6)):
            case 0:
                game.start(self.choose([2, 4, -9, 9]))
            case 1 | 2:
                game.cooperate(self.choose(STAGES))
            case 3:
                game.pass_time(self.choose([50, 5_000, 9_999, 10_000, 30_000]))
            case 4:
                game.haunt(self.choose(range(1, 11)))
            case _:
                game.crash(self.choose(["", "lost", "unanswered"]))


@pytest.mark.parametrize("seed", range(40))
def test_invariants_hold_over_long_random_walks(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(150):
        walk.step()
    walk.game.cooperate("follow")
    walk.game.teardown()
