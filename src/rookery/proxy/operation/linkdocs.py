"""The page about the states of a connection, made from the tables of `linkstate`.

Run it with the path of the page; `scripts/docs` does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Final, TypeVar

from rookery.proxy.linkstate import (
    BACKEND_TRANSITIONS,
    LINK_TRANSITIONS,
    BackendStage,
    LinkStage,
)

_HEAD: Final = """# The life of a connection through the proxy

This page is made from the tables in `proxy/linkstate.py` by `scripts/docs`. A client's connection
to the proxy, and each connection to a broker that belongs to it, change their stages by these
events only. Events that leave the stage as it is are in the tables, not in the drawings.

"""
_CANNOT: Final = "no"

E = TypeVar("E", bound=Enum)
S = TypeVar("S", bound=Enum)


def page() -> str:
    """Return the text of the page."""
    parts = [
        _HEAD,
        *_chapter("The client's connection", LINK_TRANSITIONS, [*LinkStage]),
        "\n",
        *_chapter("A connection to a broker", BACKEND_TRANSITIONS, [*BackendStage]),
    ]
    return "".join(parts)


def _chapter(
    title: str, transitions: Mapping[E, Sequence[S | None]], stages: Sequence[S]
) -> Iterator[str]:
    yield f"## {title}\n\n"
    yield from _draw(transitions, stages)
    yield "\n"
    yield from _table(transitions, stages)


def _draw(transitions: Mapping[E, Sequence[S | None]], stages: Sequence[S]) -> Iterator[str]:
    """Yield a diagram; the events from one stage to another share an arrow."""
    yield "```mermaid\nstateDiagram-v2\n"
    for stage in stages:
        yield f'    state "{stage.value}" as {stage.name}\n'
    yield f"    [*] --> {stages[0].name}\n"
    for column, stage in enumerate(stages):
        events: dict[S, list[str]] = {}
        for event, row in transitions.items():
            following = row[column]
            if following is not None and following is not stage:
                events.setdefault(following, []).append(event.value)
        for following, names in events.items():
            yield f"    {stage.name} --> {following.name}: {', '.join(names)}\n"
    yield f"    {stages[-1].name} --> [*]\n```\n"


def _table(transitions: Mapping[E, Sequence[S | None]], stages: Sequence[S]) -> Iterator[str]:
    """Yield a table: the stage after each event, by the stage before it."""
    yield f"| event | {' | '.join(stage.value for stage in stages)} |\n"
    yield f"|---|{'---|' * len(stages)}\n"
    for event, row in transitions.items():
        cells = (_CANNOT if stage is None else stage.value for stage in row)
        yield f"| {event.value} | {' | '.join(cells)} |\n"
    yield f"\n{_CANNOT}: the event cannot happen in this stage.\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), "utf-8")
