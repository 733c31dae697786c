"""The outcome of the guard's decision: the part of a request to serve, and the other answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rookery.wire.message import Api, Message
from rookery.wire.partition import Halves, join

AnswerChange = Callable[[Any], Message]
"""Removes what a client may not learn from an answer; returns the answer or a changed copy."""


class RefusedHalf(NamedTuple):
    """A cut, and the answer to the half that is not served."""

    halves: Halves[Any, Any]
    answer: Message


class AccessVerdict:
    """The served part of one request, and how its answer is completed."""

    __slots__ = ("api", "changes", "last_changes", "refused", "request")

    def __init__(self, api: Api[Any, Any], request: Message) -> None:
        self.api = api
        self.request: Message | None = request
        """What the handler gets; None if nothing is served."""
        self.refused: list[RefusedHalf] = []
        """The cuts, the outermost first."""
        self.changes: list[AnswerChange] = []
        """Changes of the answer to the served part."""
        self.last_changes: list[AnswerChange] = []
        """Changes of the answer to the whole request."""

    def refuse(self, answer: Message) -> None:
        """Refuse all that is still served."""
        halves = Halves(self.api, self.request, None, self.request)
        self.refused.append(RefusedHalf(halves, answer))
        self.request = None

    def cut(self, halves: Halves[Any, Any], answer: Message) -> None:
        """Refuse one half of what is still served."""
        self.refused.append(RefusedHalf(halves, answer))
        self.request = halves.kept

    def serve_empty(self, request: Message) -> None:
        """Serve a request without any item, if all items are refused."""
        last = self.refused[-1]
        self.refused[-1] = last._replace(halves=last.halves._replace(kept=request))
        self.request = request

    @property
    def is_plain(self) -> bool:
        """Whether the request is served as it is, and so is its answer."""
        return not self.refused and not self.changes

    def complete(self, answer: Message | None) -> Message:
        """Return the answer to the whole request, given that to the served part."""
        if answer is not None:
            for change in self.changes:
                answer = change(answer)
        for refused in reversed(self.refused):
            answer = join(refused.halves, answer, refused.answer)
        if answer is None:
            raise TypeError(f"{self.api.name}: there is no answer to complete")
        for change in self.last_changes:
            answer = change(answer)
        return answer
