"""A classic group under a test's control: requests, answers and a manual clock."""

from __future__ import annotations

from itertools import count
from typing import Any, NamedTuple

from rookery.broker.coordination.machine import (
    ClientGone,
    Effect,
    MachineRequest,
    Persist,
    Reply,
    Tick,
)
from rookery.broker.groups.classic.machine import ClassicGroupMachine
from rookery.broker.groups.settings import ClassicSettings
from rookery.errors import ErrorCode
from rookery.wire.codec import decode, encode_bytes
from rookery.wire.message import Message
from rookery.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from rookery.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from rookery.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from rookery.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

AT_ONCE = ClassicSettings(initial_rebalance_delay_ms=0)
GROUP = "readers"


class Token(NamedTuple):
    """A request's name; no two are the same object."""

    number: int


class Driver:
    """A group, and its answers so far."""

    def __init__(self, settings: ClassicSettings = AT_ONCE, now_ms: int = 1_000) -> None:
        self.settings = settings
        self.now_ms = now_ms
        self.group = ClassicGroupMachine.new(GROUP, settings)
        self.persisted: list[bytes] = []
        self.answers: dict[Token, Any] = {}
        self.versions: dict[Token, int] = {}
        self._numbers = count(1)

    def send(self, message: Message, version: int) -> Token:
        """Hand in a request as it comes off the wire."""
        token = Token(next(self._numbers))
        self.versions[token] = version
        read = decode(type(message), version, encode_bytes(message, version))
        request = MachineRequest(token, read, version, "client", "/127.0.0.1", f"m{token.number}")
        self.take(self.group.on(request, self.now_ms))
        return token

    def take(self, effects: list[Effect]) -> None:
        """Carry effects out: nothing may be answered before it is kept, nor twice."""
        for place, effect in enumerate(effects):
            if isinstance(effect, Persist):
                assert place == 0, "an answer came before its persist"
                self.persisted.append(effect.body)
            else:
                self._answer(effect)

    def _answer(self, reply: Reply) -> None:
        assert reply.token not in self.answers, "a request was answered twice"
        version = self.versions[reply.token]
        response = reply.response
        self.answers[reply.token] = decode(type(response), version, encode_bytes(response, version))

    def pass_time(self, ms: int) -> None:
        """Let time pass, with a tick wherever the group wants one."""
        end_ms = self.now_ms + ms
        while (due := self.group.deadline_ms) is not None and due <= end_ms:
            self.now_ms = max(due, self.now_ms)
            self.take(self.group.on(Tick(), self.now_ms))
        self.now_ms = end_ms

    def lose(self, token: Token) -> None:
        """Let the client of a request be gone."""
        self.take(self.group.on(ClientGone(token), self.now_ms))

    def restart(self) -> None:
        """Let another coordinator take over what was kept; held requests die with the old one."""
        if self.persisted:
            self.group = ClassicGroupMachine.load(
                GROUP, self.persisted[-1], self.settings, self.now_ms
            )
        else:
            self.group = ClassicGroupMachine.new(GROUP, self.settings)

    def join(
        self,
        member_id: str = "",
        *,
        version: int = 9,
        instance_id: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
    ) -> Token:
        """Ask to join."""
        offered = {"range": b"r"} if protocols is None else protocols
        message = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in offered.items()
            ],
        )
        return self.send(message, version)

    def joined(self, token: Token) -> JoinGroupResponse:
        """Return the answer to a join."""
        answer: JoinGroupResponse = self.answers[token]
        return answer

    def come(self, **how: Any) -> tuple[str, Token]:
        """Join as a new member of version 4 or later: first get an id, then use it."""
        answer = self.joined(self.join(**how))
        assert answer.error_code is ErrorCode.MEMBER_ID_REQUIRED
        return answer.member_id, self.join(answer.member_id, **how)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignment: dict[str, bytes] | None = None,
        *,
        version: int = 5,
        instance_id: str | None = None,
        protocol: tuple[str | None, str | None] = ("consumer", "range"),
    ) -> Token:
        """Ask for the member's part."""
        message = SyncGroupRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol[0],
            protocol_name=protocol[1],
            assignments=[
                SyncGroupRequestAssignment(member_id=key, assignment=part)
                for key, part in (assignment or {}).items()
            ],
        )
        return self.send(message, version)

    def synced(self, token: Token) -> SyncGroupResponse:
        """Return the answer to a sync."""
        answer: SyncGroupResponse = self.answers[token]
        return answer

    def beat(
        self, member_id: str, generation: int, *, instance_id: str | None = None, version: int = 4
    ) -> ErrorCode:
        """Heartbeat; return the answer's code."""
        message = HeartbeatRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
        )
        answer: HeartbeatResponse = self.answers[self.send(message, version)]
        return answer.error_code

    def leave(self, *members: tuple[str, str | None], version: int = 5) -> LeaveGroupResponse:
        """Let members leave; return the answer."""
        message = LeaveGroupRequest(
            group_id=GROUP,
            member_id=members[0][0] if version < 3 else "",
            members=[
                MemberIdentity(member_id=member_id, group_instance_id=instance_id)
                for member_id, instance_id in members
            ],
        )
        answer: LeaveGroupResponse = self.answers[self.send(message, version)]
        return answer

    def settle(self, size: int = 1) -> list[str]:
        """Bring an empty group to a stable generation of `size` members; the leader is first."""
        return self.resettle([self.come()[0] for _ in range(size)])

    def resettle(self, ids: list[str]) -> list[str]:
        """Have all these members join again and sync; return them, the leader first."""
        tokens = [self.join(member_id) for member_id in ids]
        if any(token not in self.answers for token in tokens):
            tokens = [self.join(member_id) for member_id in ids]
        answer = self.joined(tokens[-1])
        parts = {member_id: f"part of {member_id}".encode() for member_id in ids}
        for member_id in ids:
            is_leader = member_id == answer.leader
            self.sync(member_id, answer.generation_id, parts if is_leader else None)
        assert self.group.state_name == "Stable"
        return sorted(ids, key=lambda member_id: member_id != answer.leader)
