"""Access of fetches with sessions (KIP-227), whose requests do not name all their partitions.

A session contains only topics that its client might read when it was opened. It is usable on the
connection that opened it and until the rules change; then the client opens another one, by naming
all its partitions again. A fetch with a denied topic gets no session, so that each of its requests
names the topic and each answer has the error.
"""

from __future__ import annotations

from typing import Any

from rookery.errors import ErrorCode
from rookery.net.session import ClientSession
from rookery.service.access.policy import AccessPolicy
from rookery.service.access.verdict import AccessVerdict
from rookery.service.fetchsessions import CLOSING, OPENING
from rookery.wire.message import Message
from rookery.wire.messages.fetch import FetchResponse


class FetchAccess:
    """Keeps fetch sessions within the rules."""

    def __init__(self, policy: AccessPolicy) -> None:
        self._policy = policy

    def check(self, verdict: AccessVerdict, request: Any, session: ClientSession) -> None:
        """Change the verdict on a fetch as its session requires."""
        if request.session_epoch > OPENING:
            if session.fetch_access != (request.session_id, self._policy.stamp) or verdict.refused:
                _restart(verdict, request)
        elif verdict.refused:
            if verdict.request is not None:
                verdict.request = verdict.request.replace(session_epoch=CLOSING)
        elif request.session_epoch == OPENING:
            stamp = self._policy.stamp

            def remember(answer: FetchResponse) -> Message:
                session.fetch_access = answer.session_id, stamp
                return answer

            verdict.changes.append(remember)


def _restart(verdict: AccessVerdict, request: Message) -> None:
    verdict.refused.clear()
    verdict.request = request
    code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    verdict.refuse(FetchResponse(error_code=code, responses=[]))
