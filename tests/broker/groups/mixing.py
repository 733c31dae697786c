"""A group that changes its protocol under a test's control, with classic consumers in it."""

from __future__ import annotations

from itertools import count
from typing import Any

from rookery.broker.coordination.machine import Event, MachineRequest, Persist, Reply, Tick
from rookery.broker.groups.consumer.assign import Places
from rookery.broker.groups.consumer.machine import ConsumerGroupMachine
from rookery.broker.groups.kind import GroupSettings
from rookery.broker.groups.kindtable import Kinds
from rookery.broker.groups.machine import CommitGate, gate_of
from rookery.broker.groups.settings import ClassicSettings, ConsumerSettings
from rookery.errors import ErrorCode
from rookery.wire.codec import decode, encode_bytes
from rookery.wire.message import Message
from rookery.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from rookery.wire.messages.heartbeat import HeartbeatRequest
from rookery.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from rookery.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from rookery.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from rookery.wire.protocols.consumer import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from tests.broker.groups.beats import Cluster, KeptLog

GROUP = "readers"
AT_ONCE = ClassicSettings(initial_rebalance_delay_ms=0)
EAGER = "range"
COOPERATIVE = "cooperative-sticky"
REBALANCE_MS = 20_000
SESSION_MS = 10_000
Owned = frozenset[tuple[str, int]]
"""Partitions by topic name."""


class Mixed:
    """A group, the clock, the last persisted state, and the answers."""

    def __init__(
        self,
        cluster: Cluster,
        consumer: ConsumerSettings | None = None,
        classic: ClassicSettings = AT_ONCE,
    ) -> None:
        self.cluster = cluster
        self.kinds = Kinds(GroupSettings(classic, consumer or ConsumerSettings()))
        self.now_ms = 1_000
        self.machine = self.kinds.load(GROUP, "", b"", self.now_ms)
        self.kept: tuple[str, bytes] = ("", b"")
        self.log = KeptLog()
        self.answers: dict[int, Any] = {}
        self._versions: dict[int, int] = {}
        self._tokens = count(1)

    @property
    def kind(self) -> str:
        """Which protocol the group speaks."""
        return self.machine.kind

    @property
    def gate(self) -> CommitGate:
        """The machine as the guard of offsets."""
        gate = gate_of(self.machine)
        assert gate is not None
        return gate

    @property
    def consumer(self) -> ConsumerGroupMachine:
        """The machine, which must be one of the consumer protocol."""
        assert isinstance(self.machine, ConsumerGroupMachine)
        return self.machine

    def send(self, message: Message, version: int) -> int:
        """Hand in a request as it comes off the wire."""
        token = next(self._tokens)
        self._versions[token] = version
        read = decode(type(message), version, encode_bytes(message, version))
        new_id = f"m{token}"
        self._on(MachineRequest(token, read, version, "app", "/127.0.0.1", new_id, self.cluster))
        return token

    def ask(self, message: Message, version: int) -> Any:
        """Hand in a request that is answered at once."""
        return self.answers[self.send(message, version)]

    def beat(self, version: int = 1, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a ConsumerGroupHeartbeat."""
        message = ConsumerGroupHeartbeatRequest(**{"group_id": GROUP, **fields})
        answer: ConsumerGroupHeartbeatResponse = self.ask(message, version)
        return answer

    def _on(self, event: Event) -> None:
        self.machine, effects = self.kinds.on(GROUP, self.machine, event, self.now_ms)
        for at, effect in enumerate(effects):
            if isinstance(effect, Persist):
                assert at == 0, "an effect is persisted before it is reported"
                self.kept = self.kind, self.log.keep(effect)
            else:
                self._answer(effect)

    def _answer(self, reply: Reply) -> None:
        assert reply.token not in self.answers, "a request was answered twice"
        version, response = self._versions[reply.token], reply.response
        self.answers[reply.token] = decode(type(response), version, encode_bytes(response, version))

    def pass_time(self, ms: int) -> None:
        """Let time pass, with a tick wherever the group wants one."""
        end_ms = self.now_ms + ms
        while (due := self.machine.deadline_ms) is not None and due <= end_ms:
            self.now_ms = max(due, self.now_ms)
            self._on(Tick())
        self.now_ms = end_ms

    def fail_over(self) -> None:
        """Let another coordinator take over with what was kept; held requests are lost."""
        kind, _ = self.kept
        self.machine = self.kinds.load(GROUP, kind, self.log.body, self.now_ms, self.log.changes)
        for token in self._versions:
            self.answers.setdefault(token, None)


class ClassicReader:
    """A consumer of the classic protocol, which does as Kafka's own does, one request a step."""

    def __init__(
        self,
        group: Mixed,
        *topics: str,
        assignor: str = EAGER,
        instance_id: str | None = None,
        version: int = 3,
        others: tuple[str, ...] = (),
    ) -> None:
        self.group = group
        self.topics = list(topics)
        self.assignor = assignor
        self.instance_id = instance_id
        self.version = version
        self.others = others
        """Further assignors that it understands."""
        self.member_id = ""
        self.generation = -1
        self.protocol: tuple[str | None, str | None] = (None, None)
        self.owned: Owned = frozenset()
        self.last = ErrorCode.NONE
        """The code of the last answer."""
        self._joining: int | None = None
        self._syncing: int | None = None
        self._joined: JoinGroupResponse | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether it has asked for something and awaits the answer."""
        token = self._joining or self._syncing
        return token is not None and token not in self.group.answers

    def places(self) -> Places:
        """Return what it owns, by topic id."""
        known = ((self.group.cluster.find(name), at) for name, at in self.owned)
        return frozenset((topic.id, at) for topic, at in known if topic is not None)

    def step(self) -> None:
        """Take in an answer that is there, or ask for what comes next."""
        if self.is_waiting:
            return
        if self._joining is not None:
            token, self._joining = self._joining, None
            self._take_join(self.group.answers[token])
        elif self._syncing is not None:
            token, self._syncing = self._syncing, None
            self._take_sync(self.group.answers[token])
        elif self._joined is not None:
            self._sync(self._joined)
        elif self.generation < 0:
            self.join()
        else:
            self._heartbeat()

    def join(self) -> None:
        """Ask to join; an eager one gives up everything before."""
        if self.assignor != COOPERATIVE:
            self.owned = frozenset()
        self._joined = None
        metadata = write_subscription(
            ConsumerProtocolSubscription(
                topics=self.topics,
                owned_partitions=_as_parts(self.owned),
                generation_id=self.generation,
            ),
            self.version,
        )
        message = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name in (self.assignor, *self.others)
            ],
        )
        self._joining = self.group.send(message, 9)

    def _take_join(self, answer: JoinGroupResponse | None) -> None:
        if answer is None or answer.error_code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
            return
        self.last = answer.error_code
        if answer.error_code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.join()
        elif answer.error_code is ErrorCode.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.protocol = answer.protocol_type, answer.protocol_name
            self._joined = answer
        else:
            self.forget()

    def _sync(self, joined: JoinGroupResponse) -> None:
        self._joined = None
        leads = joined.leader == self.member_id
        parts = _assign(joined, self.group.cluster, self.assignor) if leads else {}
        message = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol[0],
            protocol_name=self.protocol[1],
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=part)
                for member_id, part in parts.items()
            ],
        )
        self._syncing = self.group.send(message, 5)

    def _take_sync(self, answer: SyncGroupResponse | None) -> None:
        if answer is None or answer.error_code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
            return
        self.last = answer.error_code
        if answer.error_code is not ErrorCode.NONE:
            self._lose(answer.error_code)
            return
        before, self.owned = self.owned, _as_owned(answer.assignment)
        if before - self.owned:  # only a cooperative one owns anything by now
            self.join()

    def _heartbeat(self) -> None:
        self.last = self.heartbeat()
        if self.last is ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
        elif self.last is not ErrorCode.NONE:
            self._lose(self.last)

    def heartbeat(self) -> ErrorCode:
        """Send a heartbeat and do nothing about the answer; return its code."""
        message = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        code: ErrorCode = self.group.ask(message, 4).error_code
        return code

    def leave(self) -> ErrorCode:
        """Leave the group."""
        members = [MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)]
        answer = self.group.ask(LeaveGroupRequest(group_id=GROUP, members=members), 5)
        self.forget()
        code: ErrorCode = answer.members[0].error_code
        return code

    def _lose(self, code: ErrorCode) -> None:
        if code is ErrorCode.ILLEGAL_GENERATION:
            self.owned, self.generation = frozenset(), -1
        else:
            self.forget()

    def forget(self) -> None:
        """Forget the member id and all partitions."""
        self.owned, self.generation, self.member_id = frozenset(), -1, ""
        self._joining = self._syncing = self._joined = None


def _assign(joined: JoinGroupResponse, cluster: Cluster, assignor: str) -> dict[str, bytes]:
    """Assign as a leader does; a cooperative one gives nothing away that is owned by another."""
    wants = {member.member_id: read_subscription(member.metadata) for member in joined.members}
    owners = {
        (part.topic, at): member_id
        for member_id, want in wants.items()
        for part in want.owned_partitions
        for at in part.partitions
    }
    parts: dict[str, set[tuple[str, int]]] = {member_id: set() for member_id in wants}
    for name in sorted({topic for want in wants.values() for topic in want.topics}):
        topic = cluster.find(name)
        readers = sorted(member for member, want in wants.items() if name in want.topics)
        for at in range(topic.partitions if topic is not None else 0):
            reader = readers[at % len(readers)]
            if assignor != COOPERATIVE or owners.get((name, at), reader) == reader:
                parts[reader].add((name, at))
    return {
        member_id: write_assignment(
            ConsumerProtocolAssignment(assigned_partitions=_as_parts(frozenset(part)))
        )
        for member_id, part in parts.items()
    }


def _as_parts(owned: Owned) -> list[AssignedTopic]:
    names = sorted({name for name, _ in owned})
    return [
        AssignedTopic(topic=name, partitions=[at for topic, at in sorted(owned) if topic == name])
        for name in names
    ]


def _as_owned(assignment: bytes) -> Owned:
    if not assignment:
        return frozenset()
    parts = read_assignment(assignment).assigned_partitions
    return frozenset((part.topic, at) for part in parts for at in part.partitions)
