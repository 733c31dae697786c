"""Measuring requests: how long each API takes, and which errors its answers carry.

It runs for every request, so it does little: two looks at the clock, one bucket of a histogram,
and a walk over the error codes of the answer, whose places are known from the message's class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from rookery import metrics
from rookery.clock import stopwatch
from rookery.errors import ErrorCode
from rookery.wire.message import Api, Message
from rookery.wire.table import element_class, shape_of

SECONDS: Final = metrics.histograms(
    "rookery_broker_request_seconds",
    "From a request's arrival to its answer, by API; a Fetch includes its wait for records.",
    ("api",),
)
ERRORS: Final = metrics.counters(
    "rookery_broker_errors_total", "Errors in answers, by API and code.", ("api", "error")
)
IN_FLIGHT: Final = metrics.gauge(
    "rookery_broker_requests_inflight", "Requests that were started and not answered yet."
)

Note = Callable[[ErrorCode], None]
Visit = Callable[[Message, Note], None]


class Meter:
    """What is counted of one API."""

    __slots__ = ("_api", "_observe", "_visit")

    def __init__(self, api: Api[Any, Any]) -> None:
        self._api = api
        # Both are found when the first answer comes: most APIs are never asked.
        self._observe: Callable[[float], None] = self._begin
        self._visit: Visit = self._learn

    @staticmethod
    def start() -> float:
        """Count a request in; return what `finish` wants to know."""
        IN_FLIGHT.value += 1
        return stopwatch()

    def finish(self, started: float, answer: Message | None) -> None:
        """Count a request out, with the errors that it is answered with."""
        IN_FLIGHT.value -= 1
        self._observe(stopwatch() - started)
        if answer is not None:
            self._visit(answer, self._note)

    def _begin(self, seconds: float) -> None:
        self._observe = SECONDS.labels(self._api.name).observe
        self._observe(seconds)

    def _learn(self, answer: Message, note: Note) -> None:
        self._visit = _visitor(self._api.response)
        self._visit(answer, note)

    def _note(self, code: ErrorCode) -> None:
        ERRORS.labels(self._api.name, ErrorCode(code).name).inc()


def _visitor(cls: type[Message]) -> Visit:
    """Write a function that finds the error codes in a message of this class.

    Written out, its loops take a quarter of the time that functions calling each other do.
    """
    body = _loops(cls, "message", 1) or [" pass"]
    scope: dict[str, Any] = {}
    source = "\n".join(["def visit(message, note):", *body])
    exec(source, scope)  # noqa: S102 (the text is made of our own field names only)
    visit: Visit = scope["visit"]
    return visit


def _loops(cls: type[Message], name: str, depth: int) -> list[str]:
    indent, lines = " " * depth, []
    for field, entry in cls.__fields__.items():
        value = f"{name}.{field}"
        if entry.annotation == "ErrorCode":
            lines.append(f"{indent}if {value}: note({value})")
            continue
        element = element_class(cls, entry)
        inner = _loops(element, f"one{depth}", depth + 1) if element is not None else []
        if inner:
            is_array = shape_of(cls, entry).is_array
            many = f"{value} or ()" if is_array else f"() if {value} is None else ({value},)"
            lines += [f"{indent}for one{depth} in {many}:", *inner]
    return lines
