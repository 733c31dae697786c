"""Per-API metering: the latency of each API, and the errors in its responses.

It runs for every request, so it does little: two clock readings, one histogram bucket, and a walk
over the error codes of the response, whose positions are known from the message class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rookery import metrics
from rookery.clock import stopwatch
from rookery.errors import ErrorCode
from rookery.wire.message import Api, Message
from rookery.wire.table import element_class, shape_of

Note = Callable[[ErrorCode], None]
Visit = Callable[[Message, Note], None]


class RequestMetrics:
    """The metrics of the requests that one kind of server answers."""

    __slots__ = ("errors", "in_flight", "seconds")

    def __init__(self, server: str, registry: metrics.Registry = metrics.REGISTRY) -> None:
        """Declare the metrics; their names begin with `rookery_<server>_`."""
        self.seconds = registry.histograms(
            f"rookery_{server}_request_seconds",
            "From a request's arrival to its answer, by API; "
            "a Fetch includes its wait for records.",
            ("api",),
        )
        self.errors = registry.counters(
            f"rookery_{server}_errors_total",
            "Errors in answers, by API and code.",
            ("api", "error"),
        )
        self.in_flight = registry.gauge(
            f"rookery_{server}_requests_inflight",
            "Requests that were started and not answered yet.",
        )


class ApiMeter:
    """Counts the requests of one API."""

    __slots__ = ("_api", "_in_flight", "_metrics", "_observe", "_visit")

    def __init__(self, request_metrics: RequestMetrics, api: Api[Any, Any]) -> None:
        self._metrics = request_metrics
        self._in_flight = request_metrics.in_flight
        self._api = api
        # Both are replaced at the first response: most APIs are never called.
        self._observe: Callable[[float], None] = self._observe_first
        self._visit: Visit = self._visit_first

    def start(self) -> float:
        """Count a request as started; return the start time for `finish`."""
        self._in_flight.value += 1
        return stopwatch()

    def finish(self, started: float, answer: Message | None) -> None:
        """Count a request as finished, with the errors in its response."""
        self._in_flight.value -= 1
        self._observe(stopwatch() - started)
        if answer is not None:
            self._visit(answer, self._count_error)

    def _observe_first(self, seconds: float) -> None:
        self._observe = self._metrics.seconds.labels(self._api.name).observe
        self._observe(seconds)

    def _visit_first(self, answer: Message, note: Note) -> None:
        self._visit = _visitor(self._api.response)
        self._visit(answer, note)

    def _count_error(self, code: ErrorCode) -> None:
        self._metrics.errors.labels(self._api.name, ErrorCode(code).name).inc()


def _visitor(cls: type[Message]) -> Visit:
    """Generate a function that passes the error codes in a message of this class to `note`.

    Generated loops take a quarter of the time that functions calling each other take.
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
