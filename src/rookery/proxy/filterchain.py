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
from typing import Any, Final, NamedTuple

from rookery.errors import ApiError, ErrorCode
from rookery.proxy.filterapi import FORWARD, FilterContext, FilterFunction, Forward, Verdict
from rookery.wire.message import Message

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FilterFailure:
    """A filter raised, or did not decide in time."""

    code: ErrorCode
    """The error that the client gets."""


class FilterStep(NamedTuple):
    """A function of a filter, and the filter's place in the configuration."""

    position: int
    function: FilterFunction


class FilterOutcome(NamedTuple):
    """The decision of several filters about one message."""

    verdict: Verdict | FilterFailure
    position: int = 0
    """The place of the filter that did not forward the message; 0 if all did."""


def run_filters(
    steps: Sequence[FilterStep], context: FilterContext, message: Message, timeout_ms: int
) -> FilterOutcome | Awaitable[FilterOutcome]:
    """Pass a message through filters; return their decision, or an awaitable of it.

    Args:
        steps: the functions, in the order in which they see the message.
        context: of the request.
        message: a request or a response.
        timeout_ms: how long filters that wait may take together.

    Returns:
        The first verdict that is not to forward, else to forward the message as it is then.
    """
    current = FORWARD
    for index, step in enumerate(steps):
        try:
            verdict = step.function(context, current.message or message)
        except Exception as error:  # noqa: BLE001 (a user's own code)
            return _fail(context, step, error)
        if inspect.isawaitable(verdict):
            rest = _run_rest(steps[index:], context, message, (current, verdict))
            return _limit(rest, context, timeout_ms)
        if not isinstance(verdict, Forward):
            return FilterOutcome(verdict, step.position)
        if verdict.message is not None:
            current = verdict
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
        try:
            verdict: Any = (
                awaited if index == 0 else step.function(context, current.message or message)
            )
            if inspect.isawaitable(verdict):
                verdict = await verdict
        except Exception as error:  # noqa: BLE001 (a user's own code)
            return _fail(context, step, error)
        if not isinstance(verdict, Forward):
            return FilterOutcome(verdict, step.position)
        if verdict.message is not None:
            current = verdict
    return FilterOutcome(current)


async def _limit(
    work: Awaitable[FilterOutcome], context: FilterContext, timeout_ms: int
) -> FilterOutcome:
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await work
    except TimeoutError:
        log.warning("a filter did not decide about %s in %d ms", context.api.name, timeout_ms)
        return FilterOutcome(_TIMED_OUT)


def _fail(context: FilterContext, step: FilterStep, error: Exception) -> FilterOutcome:
    name = getattr(step.function, "__qualname__", repr(step.function))
    if isinstance(error, ApiError):
        # A filter can refuse a request by the error that the client is to get.
        return FilterOutcome(FilterFailure(error.code), step.position)
    log.error("the filter %s failed on %s: %r", name, context.api.name, error, exc_info=error)
    return FilterOutcome(FilterFailure(ErrorCode.UNKNOWN_SERVER_ERROR), step.position)


_TIMED_OUT: Final = FilterFailure(ErrorCode.REQUEST_TIMED_OUT)
