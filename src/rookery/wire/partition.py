"""Cuts a request in two by its items, and joins the responses to both halves.

Authorization refuses some topics of a request and serves the others; routing sends some of them to
another cluster. Both need the same three steps, and none of them depends on the API:

    halves = cut(api, version, request, is_allowed, TopicName)
    first = await serve(halves.kept) if halves.kept else None
    second = api.refuse_items(halves.denied, code) if halves.denied else None
    answer = join(halves, first, second)

More than two parts are cuts of a half, joined from the inside out. Lists that can be cut are
declared with each API's messages (`Api.items`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple

from rookery.wire.cutplan import Chain, Decision, plan_cut
from rookery.wire.items import Items, Level
from rookery.wire.merge import merge_answers
from rookery.wire.message import Api, Message, Request, Response, kind_of


class Halves(NamedTuple, Generic[Request, Response]):
    """A request and its two halves, one of which is None if the other is the whole request.

    The halves share structures with the request.
    """

    api: Api[Request, Response]
    request: Request
    kept: Request | None
    denied: Request | None


def cut(
    api: Api[Request, Response],
    version: int,
    request: Request,
    keep: Callable[..., bool],
    *kinds: object,
    keeps_all: bool = False,
) -> Halves[Request, Response]:
    """Cut a request into what a predicate keeps and what it does not.

    With kinds, `keep` gets one value for each of them, and the cut is as shallow as they allow:
    `TopicName` leaves the partitions of a topic together, `TopicName, PartitionId` does not. A
    value is None where the version or an item has none, as for the name of a topic asked for by
    its id. Without kinds, `keep` gets the structures themselves, from the outermost to the item.

    An element whose inner list is empty is kept. With `keeps_all`, so is a list that asks for
    everything; the caller must filter the answer then.

    Raises:
        ValueError: the request asks for everything; name what that is first (`asks_for_all`).
        TypeError: the request can name no item of these kinds.
    """
    wanted = tuple(kind_of(kind) for kind in kinds)
    plan = plan_cut(api, version, wanted)
    if not plan.paths:
        names = "a " + " or a ".join(kind.name for kind in wanted) if wanted else "an item"
        raise TypeError(f"{api.name} v{version} has no list that names {names}")
    if plan.whole is not None:
        is_kept = plan.whole.keeps(keep)((request,))
        return Halves(api, request, *((request, None) if is_kept else (None, request)))
    kept, denied = {}, {}
    for path in plan.paths:
        search = _Search(path.keeps(keep), path.items, version, keeps_all)
        sides = _split(request, path.levels, (request,), search)
        kept[path.levels[0].name], denied[path.levels[0].name] = sides
    if not any(denied.values()):
        return Halves(api, request, request, None)
    if not any(kept.values()):
        return Halves(api, request, None, request)
    return Halves(api, request, request.replace(**kept), request.replace(**denied))


def join(
    halves: Halves[Request, Response], first: Response | None, second: Response | None
) -> Response:
    """Join the answers to the kept and to the denied half, in the order of the request.

    Elements that were cut through are whole again. The answer as a whole has the larger throttle
    time and the first error; any other value is the first answer's, unless that one left it out.

    Raises:
        ProtocolError: an answer that must have one element for each that was asked has not.
    """
    if first is None or second is None:
        answer = first if second is None else second
        if answer is None:
            raise TypeError(f"{halves.api.name}: there is no answer to either half")
        return answer
    return merge_answers(halves.api.items, halves.request, halves.kept, first, second)


def asks_for_all(api: Api[Request, Response], version: int, request: Request) -> bool:
    """Whether a request asks for everything of a sort instead of naming it, in any of its lists."""
    paths = plan_cut(api, version, ()).paths
    return any(_is_all(request, path.levels, path.items, version) for path in paths)


class _Search(NamedTuple):
    """What a split does with the elements of one path."""

    decide: Decision
    items: Items
    version: int
    keeps_all: bool


def _split(
    owner: Message, steps: Sequence[Level], chain: Chain, search: _Search
) -> tuple[list[Any], list[Any]]:
    name, rest = steps[0].name, steps[1:]
    elements = getattr(owner, name)
    if _is_everything(elements, search.items, search.version):
        if search.keeps_all:
            return elements, []
        raise ValueError(
            f"{type(owner).__name__}.{name} asks for everything: name it before the cut"
        )
    kept: list[Any] = []
    denied: list[Any] = []
    for element in elements:
        link = (*chain, element)
        if not rest:
            (kept if search.decide(link) else denied).append(element)
            continue
        inner = _split(element, rest, link, search)
        _place(element, rest[0].name, inner, (kept, denied))
    return kept, denied


def _place(
    element: Message, name: str, inner: tuple[list[Any], list[Any]], sides: tuple[list[Any], ...]
) -> None:
    """Put an element on the side where all its inner items are, or a part of it on both."""
    kept, denied = inner
    if not denied:
        sides[0].append(element)
    elif not kept:
        sides[1].append(element)
    else:
        for side, part in zip(sides, inner, strict=True):
            side.append(element.replace(**{name: part}))


def _is_all(owner: Message, steps: Sequence[Level], items: Items, version: int) -> bool:
    elements = getattr(owner, steps[0].name)
    if _is_everything(elements, items, version):
        return True
    return len(steps) > 1 and any(
        _is_all(element, steps[1:], items, version) for element in elements
    )


def _is_everything(elements: list[Any] | None, items: Items, version: int) -> bool:
    return elements is None or (not elements and version in items.all_if_empty)
