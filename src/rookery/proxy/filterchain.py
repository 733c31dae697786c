"""Runs the filters of a virtual cluster over one message.

Filters that return their verdict at once need no task: a message passes all of them in one call. A
filter that raises, returns no verdict, or does not decide in time, fails its own request and no
other.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeGuard

from rookery.errors import ApiError, ErrorCode, ProtocolError, Unavailable, code_of
from rookery.proxy.filterapi import (
    FORWARD,
    Answer,
    Close,
    Drop,
    Filter,
    FilterContext,
    FilterFunction,
    Forward,
    Verdict,
)
from rookery.wire.message import Message

log = logging.getLogger(__name__)

# The loop itself holds only weak references to tasks.
_running: Final[set[asyncio.Future[FilterOutcome]]] = set()


@dataclass(frozen=True, slots=True)
class FilterFailure:
    """A filter raised, or did not decide in time."""

    code: ErrorCode
    """The error that the client gets."""


class FilterStep(NamedTuple):
    """A function of a filter, and the filter's place in the configuration."""

    position: int
    function: FilterFunction
    noting: Filter | None = None
    """The filter, if the function sees only responses to requests that it has a note of."""

    @property
    def name(self) -> str:
        """The name of the function, for messages."""
        name: str = getattr(self.function, "__qualname__", type(self.function).__name__)
        return name

    def applies(self, context: FilterContext) -> bool:
        """Return whether the function sees the response to a request."""
        return self.noting is None or self.noting in context.notes


class FilterOutcome(NamedTuple):
    """The decision of several filters about one message."""

    verdict: Verdict | FilterFailure
    step: FilterStep | None = None
    """The function that did not forward the message; None if all did."""

    @property
    def position(self) -> int:
        """The place of its filter; 0 if all forwarded the message."""
        return 0 if self.step is None else self.step.position


def run_filters(
    steps: Sequence[FilterStep], context: FilterContext, message: Message, timeout_ms: int
) -> FilterOutcome | Awaitable[FilterOutcome]:
    """Pass a message through filters; return their decision, or an awaitable of it.

    Args:
        steps: the functions, in the order in which they see the message.
        context: the context of the request.
        message: a request or a response.
        timeout_ms: how long filters that wait may take together.

    Returns:
        The first verdict that is not to forward, else to forward the message as it is then.
    """
    current = FORWARD
    for index, step in enumerate(steps):
        context.position = step.position
        try:
            verdict = step.function(context, message)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 (a user's own code)
            return _fail(context, step, error)
        if inspect.isawaitable(verdict):
            rest = _run_rest(steps[index:], context, message, (current, verdict))
            return _limit(rest, steps, context, timeout_ms)
        if not _is_forwarded(verdict, message):
            return _end(context, step, verdict)
        if verdict.message is not None:
            current, message = verdict, verdict.message
    return FilterOutcome(current)


async def _run_rest(
    steps: Sequence[FilterStep],
    context: FilterContext,
    message: Message,
    begun: tuple[Forward, Awaitable[Verdict]],
) -> FilterOutcome:
    """Await the first of some filters, which has begun, then run the others."""
    current, awaited = begun
    for index, step in enumerate(steps):
        context.position = step.position
        try:
            verdict: Any = awaited if index == 0 else step.function(context, message)
            if inspect.isawaitable(verdict):
                verdict = await verdict
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 (a user's own code)
            _check_cancelled()
            return _fail(context, step, error)
        _check_cancelled()
        if not _is_forwarded(verdict, message):
            return _end(context, step, verdict)
        if verdict.message is not None:
            current, message = verdict, verdict.message
    return FilterOutcome(current)


def _check_cancelled() -> None:
    """End the task if it was cancelled: a filter may have suppressed that.

    Raises:
        CancelledError: it was.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _is_forwarded(verdict: object, message: Message) -> TypeGuard[Forward]:
    """Return whether a verdict passes on a message, as it is or changed."""
    if not isinstance(verdict, Forward):
        return False
    return verdict.message is None or isinstance(verdict.message, type(message))


def _end(context: FilterContext, step: FilterStep, verdict: object) -> FilterOutcome:
    """Return the outcome of a verdict that does not pass the message on."""
    match verdict:
        case Drop() | Close():
            return FilterOutcome(verdict, step)
        case Answer(response) if isinstance(response, context.api.response):
            return FilterOutcome(verdict, step)
        case _:
            fault = f"returned no verdict about {context.api.name}: {type(verdict).__name__}"
            return blame(context, step, fault)


async def _limit(
    work: Coroutine[Any, Any, FilterOutcome],
    steps: Sequence[FilterStep],
    context: FilterContext,
    timeout_ms: int,
) -> FilterOutcome:
    """Return the decision of filters that wait; a failure if it takes too long.

    The filters run in a task of their own, which is left behind if it does not end when it is
    cancelled.
    """
    task = asyncio.ensure_future(work)
    _running.add(task)
    task.add_done_callback(_running.discard)
    try:
        await asyncio.wait({task}, timeout=timeout_ms / 1000)
    finally:
        is_late = not task.done()
        task.cancel()
    if not is_late:
        return task.result()
    step = next(step for step in steps if step.position == context.position)
    fault = f"did not decide about {context.api.name} in {timeout_ms} ms"
    return blame(context, step, fault, code=ErrorCode.REQUEST_TIMED_OUT, level=logging.WARNING)


def _fail(context: FilterContext, step: FilterStep, error: BaseException) -> FilterOutcome:
    if isinstance(error, ApiError):
        # A filter can refuse a request by the error that the client is to get.
        return FilterOutcome(FilterFailure(error.code), step)
    if isinstance(error, Unavailable):
        fault = f"cannot decide about {context.api.name}: {error}"
        return blame(context, step, fault, code=code_of(error), level=logging.WARNING)
    return blame(context, step, f"failed on {context.api.name}: {error!r}", error)


def blame(
    context: FilterContext,
    step: FilterStep | None,
    fault: str,
    error: BaseException | None = None,
    *,
    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR,
    level: int = logging.ERROR,
) -> FilterOutcome:
    """Report a fault of a filter, in the log and in the health; return what its request gets.

    Args:
        context: the context of the request.
        step: the function that is at fault; None if it is not known.
        fault: what it did.
        error: that shows where the mistake is.
        code: the error that the client gets.
        level: the level of the line in the log.
    """
    name = "a filter" if step is None else f"the filter {step.name}"
    context.report_fault(f"{name} {fault}")
    log.log(level, "%s %s", name, fault, exc_info=error)
    return FilterOutcome(FilterFailure(code), step)


def settle(
    context: FilterContext, request: Message, outcome: FilterOutcome, *, is_one_way: bool
) -> Message | None:
    """Return the response that a verdict other than to forward means; None if there is none.

    Raises:
        ProtocolError: the connection is to be closed.
    """
    verdict = outcome.verdict
    if isinstance(verdict, Close):
        raise ProtocolError(verdict.reason)
    if isinstance(verdict, Answer):
        return None if is_one_way else verdict.response
    if isinstance(verdict, FilterFailure):
        code = verdict.code
        if is_one_way:
            # Only the connection can tell the client.
            raise ProtocolError(f"a filter refused a request without a response: {code.name}")
    elif is_one_way:
        # Drop: only a request that expects no response can disappear.
        return None
    else:
        code = ErrorCode.POLICY_VIOLATION
        fault = f"dropped a {context.api.name}, whose client waits for a response"
        blame(context, outcome.step, fault, code=code)
    refusal: Message = context.api.refuse(request, code)
    return refusal
