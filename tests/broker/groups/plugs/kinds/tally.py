"""A kind of group that only counts its members: no assignment, no commits, no time-outs."""

from __future__ import annotations

from rookery.broker.coordination.machine import Effect, Event, MachineRequest, Persist, Reply
from rookery.broker.groups.kind import GroupKind, GroupSettings, StoredGroup
from rookery.errors import ErrorCode
from rookery.wire.messages.streams_group_heartbeat import (
    STREAMS_GROUP_HEARTBEAT,
    StreamsGroupHeartbeatRequest,
)

LEAVING = -1


class Tally:
    """One group."""

    kind = protocol_type = "tally"
    deadline_ms = None

    def __init__(self, epoch: int, members: list[str]) -> None:
        self.epoch = epoch
        self.members = members

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state_name(self) -> str:
        return "Empty" if self.is_empty else "Stable"

    def on(self, event: Event, now_ms: int) -> list[Effect]:
        """Let a member in or out; its epoch is that of the group."""
        if not isinstance(event, MachineRequest):
            return []
        message = event.message
        assert isinstance(message, StreamsGroupHeartbeatRequest)
        if message.member_epoch == LEAVING:
            self.members.remove(message.member_id)
        elif message.member_id not in self.members:
            self.members.append(message.member_id)
        else:
            return [self._answer(event, message)]
        self.epoch += 1
        body = "\n".join([str(self.epoch), *self.members])
        return [Persist(body.encode()), self._answer(event, message)]

    def _answer(self, request: MachineRequest, message: StreamsGroupHeartbeatRequest) -> Reply:
        answer = STREAMS_GROUP_HEARTBEAT.refuse(message, ErrorCode.NONE)
        answer.member_id, answer.member_epoch = message.member_id, self.epoch
        return Reply(request.token, answer)


def new(_group_id: str, _settings: GroupSettings, epoch: int) -> Tally:
    return Tally(epoch, [])


def load(stored: StoredGroup, _settings: GroupSettings, _now_ms: int) -> Tally:
    epoch, *members = stored.body.decode().split("\n")
    return Tally(int(epoch), members)


KIND = GroupKind(
    name="tally",
    joined_by=STREAMS_GROUP_HEARTBEAT,
    answers=(STREAMS_GROUP_HEARTBEAT,),
    new=new,
    load=load,
)
