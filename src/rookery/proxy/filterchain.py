"""Runs the filters of a virtual cluster over one message.

Filters that return their verdict at once need no task: a message passes all of them in one call. A
filter that raises, or does not decide in time, fails its own request and no other.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rookery.errors import ApiError, ErrorCode
from rookery.proxy.filterapi import FORWARD, FilterContext, FilterFunction, Forward, Verdict
from rookery.wire.message import Message

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FilterFailure:
    """A filter raised, or did not decide in time."""

    code: ErrorCode
    """The error that the client gets."""


Outcome = Verdict | FilterFailure
"""The decision of all filters about one message."""

_TIMED_OUT: Final = FilterFailure(ErrorCode.REQUEST_TIMED_OUT)


def run_filters(
    functions: Sequence[FilterFunction], context: FilterContext, message: Message, timeout_ms: int
) -> Outcome | Awaitable[Outcome]:
    """Pass a message through filters; return their decision, or an awaitable of it.

    Args:
        functions: of the filters, in the order in which they see the message.
        context: of the request.
        message: a request or a response.
        timeout_ms: how long filters that wait may take together.

    Returns:
        The first verdict that is not to forward, else to forward the message as it is then.
    """
    current = FORWARD
    for index, function in enumerate(functions):
        try:
            verdict = function(context, current.message or message)
        except Exception as error:  # noqa: BLE001 (a user's own code)
            return _fail(context, function, error)
        if inspect.isawaitable(verdict):
            rest = _run_rest(functions[index:], context, message, (current, verdict))
            return _limit(rest, context, timeout_ms)
        if not isinstance(verdict, Forward):
            return verdict
        if verdict.message is not None:
            current = verdict
    return current


async def _run_rest(
    functions: Sequence[FilterFunction],
    context: FilterContext,
    message: Message,
    begun: tuple[Forward, Awaitable[Verdict]],
) -> Outcome:
    """Await the first of some filters, which has begun, then run the others."""
    current, awaited = begun
    for index, function in enumerate(functions):
        try:
            verdict: Any = awaited if index == 0 else function(context, current.message or message)
            if inspect.isawaitable(verdict):
                verdict = await verdict
        except Exception as error:  # noqa: BLE001 (a user's own code)
            return _fail(context, function, error)
        if not isinstance(verdict, Forward):
            return verdict  # type: ignore[no-any-return] # a verdict
        if verdict.message is not None:
            current = verdict
    return current


async def _limit(work: Awaitable[Outcome], context: FilterContext, timeout_ms: int) -> Outcome:
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await work
    except TimeoutError:
        log.warning("a filter did not decide about %s in %d ms", context.api.name, timeout_ms)
        return _TIMED_OUT


def _fail(context: FilterContext, function: FilterFunction, error: Exception) -> FilterFailure:
    name = getattr(function, "__qualname__", repr(function))
    if isinstance(error, ApiError):
        # A filter can refuse a request by the error that the client is to get.
        return FilterFailure(error.code)
    log.error("the filter %s failed on %s: %r", name, context.api.name, error, exc_info=error)
    return FilterFailure(ErrorCode.UNKNOWN_SERVER_ERROR)
