"""The types of settings: conversion from text (environment, flags) or TOML, and back to TOML."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeAlias, Union, get_args, get_origin

_WORDS: Final = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
_INT = re.compile(r"[+-]?[0-9]+(_[0-9]+)*")
_FLOAT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")

Toml: TypeAlias = "str | int | float | bool | list[Toml] | dict[str, Toml]"
"""A value in a TOML file or in JSON."""


class BadValue(ValueError):  # noqa: N818 (caught here, and raised as a ConfigError)
    """The value is not valid for the setting."""


@dataclass(frozen=True, slots=True)
class ValueKind:
    """A type that a setting can have."""

    allowed: str
    """The allowed values, as the end of a sentence that begins with "must be"."""
    from_text: Callable[[str], object]
    """Parse an environment variable or a flag; raises `BadValue`."""
    from_toml: Callable[[object], object]
    """Convert a value of a TOML file; raises `BadValue`."""
    to_toml: Callable[[object], Toml]
    """Undo `from_toml`."""
    is_switch: bool = False
    """Whether its flag takes no value, with `--no-` for the opposite."""
    choices: tuple[str, ...] = ()
    """The allowed choices, if it is a choice."""
    may_be_unset: bool = False
    """Whether it can be None, which is written as an empty text."""


def kind_of(hint: object, minimum: float | None = None, maximum: float | None = None) -> ValueKind:
    """Find the kind for a type hint.

    Raises:
        TypeError: settings cannot have this type.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType} and len(arguments) == 2 and NoneType in arguments:
        [other] = [argument for argument in arguments if argument is not NoneType]
        return _optional(kind_of(other, minimum, maximum))
    if origin is Literal:
        return _choice({str(argument): argument for argument in arguments})
    if origin is tuple and len(arguments) == 2 and arguments[1] is ...:
        return _several(kind_of(arguments[0], minimum, maximum))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _choice({_member_name(member): member for member in hint})
    if hint in {int, float}:
        return _number(hint is int, minimum, maximum)
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    raise TypeError(f"a setting cannot be of type {hint}")


def toml_text(value: Toml) -> str:
    """Format a value as TOML."""
    if isinstance(value, list):
        return f"[{', '.join(map(toml_text, value))}]"
    if isinstance(value, dict):
        rows = (f"{toml_text(key)} = {toml_text(inner)}" for key, inner in value.items())
        return f"{{{', '.join(rows)}}}"
    if isinstance(value, str):
        # JSON strings are valid TOML except for this one character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def _number(is_whole: bool, minimum: float | None, maximum: float | None) -> ValueKind:  # noqa: FBT001
    words = "a whole number" if is_whole else "a number"
    if minimum is not None and maximum is not None:
        words += f" from {minimum} to {maximum}"
    elif minimum is not None:
        words += f" of at least {minimum}"
    elif maximum is not None:
        words += f" of at most {maximum}"
    low, high = -math.inf if minimum is None else minimum, math.inf if maximum is None else maximum

    def check(value: object) -> object:
        is_number = isinstance(value, int if is_whole else (int, float))
        if not is_number or isinstance(value, bool) or not isinstance(value, (int, float)):
            raise BadValue
        if not low <= value <= high or value in {math.inf, -math.inf}:  # NaN is out of range, too
            raise BadValue
        return value if is_whole else float(value)

    def parse(text: str) -> object:
        if not (_INT if is_whole else _FLOAT).fullmatch(text):
            raise BadValue
        return check(int(text) if is_whole else float(text))

    return ValueKind(words, parse, check, _as_number)


def _as_number(value: object) -> Toml:
    if not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is not a number")
    return value


def _switch(text: str) -> bool:
    if text.lower() not in _WORDS:
        raise BadValue
    return _WORDS[text.lower()]


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise BadValue
    return value


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise BadValue
    # Bytes of a variable that are not UTF-8 become surrogates, which cannot be written.
    if not value.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise BadValue
    return value


def _path(value: object) -> Path:
    text = _string(value)
    if not text or "\0" in text:
        raise BadValue
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise BadValue from None  # the home of a nonexistent user


def _parse_table(text: str) -> object:
    try:
        return _check_table(tomllib.loads(f"table = {text}")["table"])
    except tomllib.TOMLDecodeError:
        raise BadValue from None


def _check_table(value: object) -> object:
    if not isinstance(value, dict):
        raise BadValue
    return value


def _as_table(value: object) -> Toml:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not a table")
    return value


_SIMPLE: Final[dict[object, ValueKind]] = {
    str: ValueKind("a text", _string, _string, str),
    bool: ValueKind("true or false", _switch, _boolean, bool, is_switch=True),
    Path: ValueKind("a path", _path, _path, str),
    # Its keys are checked by the code that it is for.
    dict[str, Any]: ValueKind(
        'a table, such as {key = "value"}', _parse_table, _check_table, _as_table
    ),
}


def _member_name(member: Enum) -> str:
    if isinstance(member.value, str):
        return member.value
    return member.name.lower().replace("_", "-")


def _choice(values: dict[str, object]) -> ValueKind:
    names = {value: name for name, value in values.items()}

    def choose(text: str) -> object:
        if text not in values:
            raise BadValue
        return values[text]

    def take(value: object) -> object:
        # A numeric choice can be written as a number, but `true` is not 1.
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise BadValue
        chosen = choose(str(value))
        if not isinstance(value, str) and chosen != value:
            raise BadValue
        return chosen

    choices = tuple(values)
    allowed = f"one of {', '.join(choices)}"
    return ValueKind(allowed, choose, take, lambda value: names[value], choices=choices)


def _several(kind: ValueKind) -> ValueKind:
    def split(text: str) -> object:
        parts = [part.strip() for part in text.split(",")]
        return tuple(kind.from_text(part) for part in parts if part)

    def take(value: object) -> object:
        if not isinstance(value, list):
            raise BadValue
        return tuple(map(kind.from_toml, value))

    def give(value: object) -> Toml:
        return [kind.to_toml(part) for part in value] if isinstance(value, tuple) else []

    allowed = f"a list of which each is {kind.allowed} (parted by commas, in TOML an array)"
    return ValueKind(allowed, split, take, give)


def _optional(kind: ValueKind) -> ValueKind:
    return ValueKind(
        f"{kind.allowed}, or empty",
        lambda text: kind.from_text(text) if text else None,
        lambda value: None if value == "" else kind.from_toml(value),
        lambda value: "" if value is None else kind.to_toml(value),
        is_switch=kind.is_switch,
        choices=kind.choices,
        may_be_unset=True,
    )
