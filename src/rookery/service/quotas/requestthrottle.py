"""The quotas of one request: its size, its time, and the pause that follows it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, Protocol, TypeVar

from rookery.clock import stopwatch
from rookery.errors import ApiError, ErrorCode
from rookery.net.outbox import Answer
from rookery.net.requestqueue import size_of
from rookery.net.session import ClientSession
from rookery.security.quota import QuotaKey
from rookery.service.quotas.clientquotas import ClientQuotas, user_of
from rookery.wire.message import Message
from rookery.wire.messages.fetch import FetchRequest
from rookery.wire.messages.produce import ProduceRequest

T = TypeVar("T")

_PERCENT: Final = 100.0


class ThrottledClient(Protocol):
    """The connection of a client, as far as quotas need it."""

    @property
    def session(self) -> ClientSession:
        """Names the client."""

    def mute(self, duration_ms: int) -> None:
        """Start no requests for a time."""


class RequestThrottle:
    """Measures one request of a client while the cluster has quotas."""

    __slots__ = (
        "_client_id", "_connection", "_pause_ms", "_quotas", "_request", "_seconds", "_size",
        "_started", "_user",
    )  # fmt: skip

    def __init__(
        self,
        quotas: ClientQuotas,
        connection: ThrottledClient,
        client_id: str | None,
        request: Message,
        size: int,
    ) -> None:
        """Begin to measure; a fetch is limited to what the client may fetch at once.

        Args:
            quotas: the limits and meters.
            connection: the client's; it is muted after the response.
            client_id: from the request's header.
            request: the request, decoded.
            size: the size of the request in bytes.
        """
        self._quotas = quotas
        self._connection = connection
        self._user = user_of(connection.session.principal)
        self._client_id = client_id or ""
        self._request = request
        self._size = size
        self._started = stopwatch()
        self._seconds = 0.0
        self._pause_ms = 0
        if isinstance(request, FetchRequest):
            largest = quotas.largest_fetch(self._user, self._client_id)
            if largest is not None:
                request.max_bytes = min(request.max_bytes, largest)

    def end_first_step(self) -> None:
        """Add the time since the beginning; the handler waits now, or has an answer."""
        self.spend(stopwatch() - self._started)

    def spend(self, seconds: float) -> None:
        """Add processing time."""
        self._seconds += seconds

    async def measure(self, answer: Awaitable[T]) -> T:
        """Wait for an answer; of a coroutine, add the time of its steps without its waits."""
        if isinstance(answer, Coroutine):
            return await _MeasuredSteps(answer, self.spend)
        return await answer

    def take_mutations(self, partitions: int, *, is_strict: bool, pauses: bool = True) -> None:
        """Record partitions that are to be created or deleted.

        Args:
            partitions: the number of partitions.
            is_strict: whether the change is refused if the quota is used up.
            pauses: whether the client must pause then.

        Raises:
            ApiError: THROTTLING_QUOTA_EXCEEDED; the change must not be made.
        """
        pause_ms, is_allowed = self._quotas.record_mutations(
            self._user, self._client_id, partitions, is_strict=is_strict
        )
        if pauses:
            self._pause_ms = max(self._pause_ms, pause_ms)
        if not is_allowed:
            code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
            raise ApiError(code, code.sentence)

    def finish(self, answer: Message | None, encode: Callable[[Message], Answer]) -> Answer:
        """Encode a response with the pause that the client must make, and mute its connection."""
        record = self._quotas.record
        if isinstance(self._request, ProduceRequest):
            self._pause(record(QuotaKey.PRODUCER_BYTE_RATE, *self._client, self._size))
        self._pause(record(QuotaKey.REQUEST_PERCENTAGE, *self._client, self._seconds * _PERCENT))
        frame = None if answer is None else encode(answer)
        if isinstance(self._request, FetchRequest):
            self._pause(record(QuotaKey.CONSUMER_BYTE_RATE, *self._client, size_of(frame)))
        if self._pause_ms:
            if answer is not None and hasattr(answer, "throttle_time_ms"):
                answer.throttle_time_ms = self._pause_ms
                frame = encode(answer)
            # Responses are still sent, so the client learns of the pause at once.
            self._connection.mute(self._pause_ms)
        return frame

    @property
    def _client(self) -> tuple[str, str]:
        return self._user, self._client_id

    def _pause(self, pause_ms: int) -> None:
        self._pause_ms = max(self._pause_ms, pause_ms)


class _MeasuredSteps(Awaitable[T]):
    """Runs a coroutine, and reports how long each of its steps takes."""

    __slots__ = ("_coroutine", "_spend")

    def __init__(self, coroutine: Coroutine[Any, Any, T], spend: Callable[[float], None]) -> None:
        self._coroutine = coroutine
        self._spend = spend

    def __await__(self) -> Generator[Any, Any, T]:
        step: Callable[[], Any] = lambda: self._coroutine.send(None)  # noqa: E731 (replaced below)
        while True:
            started = stopwatch()
            try:
                waited_for = step()
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self._spend(stopwatch() - started)
            step = yield from self._wait(waited_for)

    def _wait(self, waited_for: Any) -> Generator[Any, Any, Callable[[], Any]]:
        """Let the event loop wait, and return the next step: continue, or raise its exception."""
        try:
            value = yield waited_for
        except BaseException as error:  # noqa: BLE001 (also a cancellation; the coroutine raises it)
            failure = error
            return lambda: self._coroutine.throw(failure)
        return lambda: self._coroutine.send(value)
