"""Replace named fields of JSON text; the text around them stays as it is, byte for byte.

A path names the fields from the outside in, separated by dots: `card.number`. A list on the way
stands for each of its elements. If a value on the way has no fields, it is meant itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from json.decoder import JSONDecodeError
from typing import Final

Path = tuple[str, ...]
Span = tuple[int, int]
"""Where a value begins and ends in the text."""

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_decode: Final = json.JSONDecoder().raw_decode
_MAX_DEPTH: Final = 100


def parse_paths(texts: Iterable[str]) -> list[Path]:
    """Return paths as their parts."""
    return [tuple(text.split(".")) for text in texts]


def replace_fields(text: str, paths: Iterable[Path], change: Callable[[str], str]) -> str:
    """Return JSON text with changed values of the named fields.

    Args:
        text: the text of one JSON value.
        paths: the paths of the fields.
        change: returns other JSON text for that of a value.

    Raises:
        ValueError: the text is not JSON.
    """
    wanted = set(paths)
    try:
        start = _skip(text, 0)
        spans: list[Span] = []
        end = _walk(text, start, wanted, spans, 0)
        if _skip(text, end) != len(text):
            raise ValueError("there is something after the JSON value")
    except RecursionError:
        raise ValueError("the JSON value is nested too deeply") from None
    parts: list[str] = []
    at = 0
    for begin, end in spans:
        parts += (text[at:begin], change(text[begin:end]))
        at = end
    return "".join([*parts, text[at:]])


def _walk(text: str, at: int, wanted: set[Path], spans: list[Span], depth: int) -> int:
    """Find the wanted values in the value at a place; return its end."""
    if depth > _MAX_DEPTH:
        raise ValueError("the JSON value is nested too deeply")
    opening = text[at : at + 1]
    if opening == "{":
        return _walk_object(text, at + 1, wanted, spans, depth)
    if opening == "[":
        return _walk_array(text, at + 1, wanted, spans, depth)
    end = _decode(text, at)[1]
    # A path ends early here: what should be inside a field may be in the field itself.
    spans.append((at, end))
    return end


def _walk_object(text: str, at: int, wanted: set[Path], spans: list[Span], depth: int) -> int:
    at = _skip(text, at)
    if text[at : at + 1] == "}":
        return at + 1
    while True:
        if text[at : at + 1] != '"':
            raise JSONDecodeError("a field has no name", text, at)
        name, at = _decode(text, at)
        at = _skip(text, _expect(text, _skip(text, at), ":"))
        inner = {path[1:] for path in wanted if path[0] == name}
        if () in inner:
            end = _decode(text, at)[1]
            spans.append((at, end))
        elif inner:
            end = _walk(text, at, inner, spans, depth + 1)
        else:
            end = _decode(text, at)[1]
        at = _skip(text, end)
        if text[at : at + 1] == "}":
            return at + 1
        at = _skip(text, _expect(text, at, ","))


def _walk_array(text: str, at: int, wanted: set[Path], spans: list[Span], depth: int) -> int:
    at = _skip(text, at)
    if text[at : at + 1] == "]":
        return at + 1
    while True:
        at = _skip(text, _walk(text, at, wanted, spans, depth + 1))
        if text[at : at + 1] == "]":
            return at + 1
        at = _skip(text, _expect(text, at, ","))


def _expect(text: str, at: int, sign: str) -> int:
    if text[at : at + 1] != sign:
        raise JSONDecodeError(f"{sign!r} is missing", text, at)
    return at + 1


def _skip(text: str, at: int) -> int:
    spaces = _SPACE.match(text, at)
    return spaces.end() if spaces else at
