"""Compares our group with Kafka's under the same requests, and matches their member ids."""

from __future__ import annotations

from typing import Any

from rookery.wire.message import Message
from rookery.wire.messages.join_group import JoinGroupResponse


class Likeness:
    """Turns our ids into Kafka's."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.theirs: dict[str, str] = {}
        """Kafka's member ids by ours."""

    def translate(self, message: Message) -> Message:
        """Return a request of ours as Kafka is to be asked."""
        changes: dict[str, object] = {"group_id": self.group_id}
        if hasattr(message, "member_id"):
            changes["member_id"] = self.their_id(message.member_id)
        for name in ("assignments", "members"):
            if hasattr(message, name):
                parts = [
                    part.replace(member_id=self.their_id(part.member_id))
                    for part in getattr(message, name)
                ]
                changes[name] = parts
        return message.replace(**changes)

    def their_id(self, member_id: str) -> str:
        """Return what Kafka calls a member of ours."""
        return self.theirs.get(member_id, member_id)

    def learn(self, mine: Any, theirs: Any) -> None:
        """Take note of the id that each has made up for one that joins."""
        if isinstance(mine, JoinGroupResponse) and mine.member_id and theirs.member_id:
            self.theirs.setdefault(mine.member_id, theirs.member_id)

    def joined(self, answer: JoinGroupResponse, names: dict[str, str]) -> object:
        """Return what both must agree on when a member joins."""
        return (
            answer.error_code,
            answer.generation_id,
            answer.protocol_type,
            answer.protocol_name,
            names.get(answer.leader, answer.leader),
            names.get(answer.member_id, answer.member_id),
            answer.skip_assignment,
            sorted((m.group_instance_id or "", m.metadata) for m in answer.members),
        )
