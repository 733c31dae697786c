"""The requests to one broker, queued and in flight, in order.

Kafka responds in the order of the requests. A sent request that timed out or was cancelled
therefore keeps its place, and its response is dropped on arrival.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from rookery.errors import ProtocolError, Unavailable
from rookery.net.directpath import DirectPath
from rookery.net.outbox import Answer
from rookery.net.requestqueue import QueuedRequest, ignore_settled, size_of
from rookery.wire.buffer import Buffer
from rookery.wire.frame import PREFIX_BYTES, REQUEST_MINIMUM, RESPONSE_MINIMUM, Frame

_LAST_NUMBER: Final = 2**31 - 1
_NUMBER: Final = struct.Struct(">i")
_RESPONSE_HEAD: Final = struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class CallOptions:
    """How one request is sent. Requests with the same options can share one object."""

    timeout_ms: int | None = None
    """The limit for the whole exchange; None sets no deadline."""
    client_id: str | None = None
    """Replaces the client id of a forwarded request, or that of the settings; None keeps it."""
    is_answered: bool = True
    """False for requests that the broker does not answer (Produce with acks=0)."""
    is_kept: bool = False
    """Whether the response counts as unread until the caller calls `release` with its size."""


class QueuedCall(Protocol):
    """A request among those to one broker."""

    number: int
    """Its correlation id."""
    parts: list[Buffer]
    """The bytes to send, length first."""
    unsent_bytes: int
    """The bytes that it adds to the queue."""
    name: str
    """Its name in messages."""
    is_answered: bool
    """Whether the broker responds to it."""
    is_kept: bool
    """Whether the caller reports when it has finished with the response."""
    is_urgent: bool
    """Whether it is sent before those in the queue, also while the queue is held."""
    timeout_ms: int
    deadline: float | None

    @property
    def is_done(self) -> bool:
        """Whether the response, or its failure, has been delivered."""

    def take(self, frame: Frame) -> None:
        """Pass the response on."""

    def finish(self) -> None:
        """End a request without a response, which was sent."""

    def fail(self, error: Exception) -> None:
        """Report that there will be no response."""


class PendingCall:
    """A request whose response is the result of a future."""

    __slots__ = (
        "answer", "deadline", "is_answered", "is_kept", "is_urgent", "name", "number", "parts",
        "read", "timeout_ms", "unsent_bytes",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        parts: list[Buffer],
        name: str,
        answer: asyncio.Future[Any],
        *,
        read: Callable[[Frame], object] | None = None,
        is_answered: bool = True,
    ) -> None:
        """Create a request without a deadline.

        Args:
            number: its correlation id.
            parts: the bytes to send, length first.
            name: its name in messages.
            answer: receives the response, or the error.
            read: converts the response to the future's result; without it, the result is the
                response.
            is_answered: whether the broker responds to it.
        """
        self.number = number
        self.parts = parts
        self.unsent_bytes = sum(map(len, parts))
        self.name = name
        self.answer = answer
        self.read = read
        self.is_answered = is_answered
        self.is_kept = False
        self.is_urgent = False
        self.timeout_ms = 0
        self.deadline: float | None = None

    @property
    def is_done(self) -> bool:
        """Whether the response, or its failure, has been delivered."""
        return self.answer.done()

    def finish(self) -> None:
        """End a request without a response, which was sent."""
        self.answer.set_result(None)

    def fail(self, error: Exception) -> None:
        """Report that there will be no response."""
        self.answer.set_exception(error)

    def take(self, frame: Frame) -> None:
        """Pass the response to the waiting caller."""
        if self.read is None:
            self.answer.set_result(frame)
            return
        try:
            result = self.read(frame)
        except Exception as error:  # noqa: BLE001 (a caller's own code; the caller gets it)
            self.answer.set_exception(error)
        else:
            self.answer.set_result(result)


class RelayedCall(QueuedRequest):
    """A client's request on its way to a broker; created by `Upstream.relay`.

    It is the request's place among those of the client, and its place among those to the broker. No
    future, task or callback of the loop stands between the two: the broker's response is the
    client's answer as soon as it is read.

    A handler of a `Connection` returns it as it is. Other code awaits it, once.
    """

    __slots__ = (
        "_read", "client_number", "deadline", "is_answered", "number", "parts", "timeout_ms",
        "unsent_bytes",
    )  # fmt: skip

    name = "a forwarded request"
    is_kept = False
    is_urgent = False

    def __init__(
        self,
        number: int,
        client_number: int,
        read: Callable[[Frame], Answer] | None,
        *,
        is_answered: bool,
    ) -> None:
        """Create a request that is not sent yet.

        Args:
            number: the correlation id that the broker sees.
            client_number: the client's correlation id.
            read: converts the response; without it, only the correlation id changes.
            is_answered: whether the broker responds to it.
        """
        # Not by `super().__init__`, which takes as long as all of this.
        self.when_settled = ignore_settled
        self.size = 0
        self.answer = None
        self.answer_bytes = 0
        self.error = None
        self.is_settled = self.is_last = self.is_abandoned = False
        self.number = number
        self.client_number = client_number
        self._read = read
        self.is_answered = is_answered
        self.parts: list[Buffer] = []
        self.unsent_bytes = 0
        self.timeout_ms = 0
        self.deadline: float | None = None

    @property
    def is_done(self) -> bool:
        """Whether the response, or its failure, has been delivered."""
        return self.is_settled

    def take(self, frame: Frame) -> None:
        """Answer the client with the broker's response; the body is not copied."""
        if self._read is None:
            self.answer_bytes = len(frame) + PREFIX_BYTES
            self.settle(
                [_RESPONSE_HEAD.pack(len(frame), self.client_number), frame[RESPONSE_MINIMUM:]]
            )
            return
        try:
            answer = self._read(frame)
        except Exception as error:  # noqa: BLE001 (a caller's own code; the client's connection ends)
            self.fail(error)
        else:
            self.answer_bytes = size_of(answer)
            self.settle(answer)

    def finish(self) -> None:
        """End a request without a response, which was sent."""
        self.settle(None)


class CallQueue:
    """Numbers requests, keeps them in order and counts the queued bytes."""

    __slots__ = ("direct", "is_held", "next_number", "sent", "unsent", "unsent_bytes")

    def __init__(self) -> None:
        self.unsent: deque[QueuedCall] = deque()
        self.unsent_bytes = 0
        """Bytes of requests that were not handed to the transport yet."""
        self.sent: deque[QueuedCall] = deque()
        """Sent and not answered, oldest first."""
        self.is_held = False
        """Whether only urgent requests are sent."""
        self.next_number = 0
        """The next correlation id."""
        self.direct: DirectPath | None = None
        """Has sent requests that are not in this queue, if it is set."""

    @property
    def in_flight(self) -> int:
        """The number of requests without a response, sent or not."""
        direct = 0 if self.direct is None else self.direct.in_flight
        return len(self.sent) + len(self.unsent) + direct

    def number(self) -> int:
        """Return the next correlation id, for a request that follows all others."""
        self._spill()
        number = self.next_number
        self.next_number = 0 if number == _LAST_NUMBER else number + 1
        return number

    def add(self, call: QueuedCall) -> None:
        """Append a request; an urgent one comes first."""
        if call.is_urgent:
            self.unsent.appendleft(call)
        else:
            self.unsent.append(call)
        self.unsent_bytes += call.unsent_bytes

    def next_to_send(self) -> QueuedCall | None:
        """Move the oldest request that is still awaited to those in flight.

        While the queue is held, only an urgent request is moved.
        """
        while self.unsent:
            if self.is_held and not self.unsent[0].is_urgent:
                return None
            call = self.unsent.popleft()
            self.unsent_bytes -= call.unsent_bytes
            if not call.is_done:  # it was not cancelled, and has time left
                if call.is_answered:
                    self.sent.append(call)
                return call
        return None

    def match_response(self, frame: Frame) -> QueuedCall:
        """Return the request that a response belongs to.

        Raises:
            ProtocolError: it is not the expected response.
        """
        number: int = _NUMBER.unpack_from(frame)[0]
        if not self.sent:
            raise ProtocolError(f"a response (correlation id {number}) without a request")
        call = self.sent[0]
        if number != call.number:
            raise ProtocolError(
                f"a response with correlation id {number}, but {call.number} was expected"
            )
        return self.sent.popleft()

    def expire(self, now: float, broker: str) -> float | None:
        """Fail the requests whose deadline has passed, in the order of their deadlines.

        Returns:
            The earliest remaining deadline.
        """
        self._spill()
        timed = [
            (call.deadline, call)
            for call in (*self.sent, *self.unsent)
            if call.deadline is not None and not call.is_done
        ]
        timed.sort(key=lambda row: row[0])
        for deadline, call in timed:
            if deadline > now:
                break
            what = f"{call.name} within {call.timeout_ms} ms"
            call.fail(Unavailable(f"{broker} did not answer {what}"))
        self._forget_unsent()
        return next((deadline for deadline, _ in timed if deadline > now), None)

    def fail(self, reason: str) -> None:
        """Fail all queued and in-flight requests."""
        self._spill()
        calls = (*self.sent, *self.unsent)
        self.sent.clear()
        self.unsent.clear()
        self.unsent_bytes = 0
        for call in calls:
            if not call.is_done:
                call.fail(Unavailable(reason))

    def _spill(self) -> None:
        if self.direct is not None:
            self.direct.spill()

    def _forget_unsent(self) -> None:
        """Drop unsent requests that are no longer awaited."""
        self.unsent = deque(call for call in self.unsent if not call.is_done)
        self.unsent_bytes = sum(call.unsent_bytes for call in self.unsent)


def renumber_request(
    request: Sequence[Buffer], number: int, client_id: str | None = None
) -> list[Buffer]:
    """Return a request, length first, with another correlation id; its body is not copied.

    Raises:
        ProtocolError: the first part does not contain the whole header.
    """
    first = memoryview(request[0]) if request else memoryview(b"")
    if len(first) < REQUEST_MINIMUM:
        raise ProtocolError(
            f"the first part of a request has {len(first)} bytes; a header has at least 8"
        )
    length = sum(map(len, request))
    if client_id is None:
        head = struct.pack(">i4si", length, bytes(first[:4]), number)
        return [head, first[REQUEST_MINIMUM:], *request[1:]]
    # The client id has the same position and form in every version of the header.
    rest = first[_client_id_end(first) :]
    name = client_id.encode()
    length += REQUEST_MINIMUM + 2 + len(name) + len(rest) - len(first)
    head = struct.pack(">i4sih", length, bytes(first[:4]), number, len(name)) + name
    return [head, rest, *request[1:]]


def _client_id_end(header: memoryview) -> int:
    size = int.from_bytes(header[REQUEST_MINIMUM : REQUEST_MINIMUM + 2], "big", signed=True)
    end = REQUEST_MINIMUM + 2 + max(size, 0)
    if size < -1 or end > len(header):
        raise ProtocolError(
            f"the client id of a request ({size} bytes) extends beyond its first part"
        )
    return end
