"""Checks of enumerated values in a declaration; an unknown value is refused with a suggestion."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints


def wrong_words(where: str, part: object) -> Iterator[str]:
    """Yield an error for each enumerated field with an unknown value."""
    hints: dict[str, Any] = get_type_hints(type(part))
    for name, kind in hints.items():
        if get_origin(kind) is Literal:
            yield from not_of(f"{where}{dash(name)}", getattr(part, name), get_args(kind))


def not_of(what: str, word: str, known: Sequence[str]) -> Iterator[str]:
    """Yield an error if a word is not one of the known ones."""
    if word not in known:
        yield f"{what} {word!r}, not of {', '.join(known)}{suggest(word, known)}"


def suggest(word: str, known: Sequence[str]) -> str:
    """Return a question with the nearest known word; empty if none is near."""
    near = difflib.get_close_matches(word.lower(), known, 1)
    return f"; did you mean {near[0]}?" if near else ""


def dash(name: str) -> str:
    """Return the name of a field as written in files."""
    return name.replace("_", "-")
