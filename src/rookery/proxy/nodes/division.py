"""Divides a request among targets, and joins the answers to the parts.

    division = divide(api, version, request, choose, TopicName, TopicId, PartitionId)
    answers = [await send(target, part) for target, part in division.parts]
    answer = division.join(answers)

A target is whatever `choose` returns: a broker, a cluster, or a reason to refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rookery.wire.message import Api, Request, Response
from rookery.wire.partition import Halves, cut, join

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Division(Generic[T, Request, Response]):
    """A request divided into parts, each with its target."""

    parts: Sequence[tuple[T, Request]]
    halves: Sequence[Halves[Request, Response]]
    """The cuts; each separates one more target."""

    def join(self, answers: Sequence[Response]) -> Response:
        """Join the answers to the parts, in the order of the parts.

        Raises:
            ProtocolError: an answer lacks elements that were asked for.
        """
        joined = answers[-1]
        for halves, answer in zip(reversed(self.halves), reversed(answers[:-1]), strict=True):
            joined = join(halves, answer, joined)
        return joined


def divide(
    api: Api[Request, Response],
    version: int,
    request: Request,
    choose: Callable[..., T],
    *kinds: object,
    default: T,
) -> Division[T, Request, Response]:
    """Divide a request by the target of each of its items.

    Args:
        api: the API of the request.
        version: the version of the request.
        request: to divide.
        choose: returns the target of an item; it gets the item's values as `cut` does, and must
            return the same for the same values.
        kinds: the kinds of the values; without any, `choose` gets the structures themselves.
        default: the target of a request that names no item.

    Raises:
        ValueError: the request asks for everything.
        TypeError: the request can name no item of these kinds.
    """
    targets: dict[T, None] = {}

    def note(*values: Any) -> bool:
        targets[choose(*values)] = None
        return True

    cut(api, version, request, note, *kinds)
    names = list(targets) or [default]
    parts: list[tuple[T, Request]] = []
    cuts: list[Halves[Request, Response]] = []
    rest: Request = request
    for target in names[:-1]:
        halves = cut(api, version, rest, lambda *values, t=target: choose(*values) == t, *kinds)
        if halves.kept is None or halves.denied is None:
            raise TypeError(f"{api.name}: the targets of its items change while it is divided")
        parts.append((target, halves.kept))
        cuts.append(halves)
        rest = halves.denied
    parts.append((names[-1], rest))
    return Division(parts, cuts)


def join_every(answers: Sequence[Response]) -> Response:
    """Join the answers of several brokers to one request, which do not overlap.

    Lists are concatenated. The answer has the largest throttle time and the first error.
    """
    values: dict[str, Any] = {}
    first = answers[0]
    for name in first.__fields__:
        column = [getattr(answer, name) for answer in answers]
        if isinstance(column[0], list):
            values[name] = [element for elements in column for element in elements]
        elif name == "throttle_time_ms":
            values[name] = max(column)
        elif name == "error_code":
            values[name] = next((code for code in column if code), column[0])
    return first.replace(**values)
