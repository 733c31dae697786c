"""Fields of argument classes: each declares its flag, its help and its default in one place.

    @dataclass(frozen=True, kw_only=True)
    class ListTopics(CommandArguments):
        internal: bool = switch("--internal", help="the cluster's own topics, too")
        connection: Connection = part(Connection, "connection")

`add_arguments` gives a parser the flags, and `read_arguments` makes the class of what was parsed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

_KEY: Final = "argument"


@dataclass(frozen=True)
class _Argument:
    """One argument, as argparse takes it; positional if it has no flags."""

    flags: tuple[str, ...]
    options: Mapping[str, Any]
    group: str = ""
    one_of: str = ""
    at_most_one_of: str = ""


@dataclass(frozen=True)
class _Part:
    """Arguments that several commands share, declared as a class."""

    cls: type[DataclassInstance]
    title: str
    description: str | None
    defaults: Mapping[str, Any]


@dataclass(frozen=True)
class _Custom:
    """Flags that are made and read elsewhere, such as those of the broker's settings."""

    add: Callable[[argparse.ArgumentParser], None]
    read: Callable[[Mapping[str, Any]], Any]


def option(
    *flags: str,
    help: str,  # noqa: A002 (as argparse calls it)
    default: object = None,
    group: str = "",
    one_of: str = "",
    at_most_one_of: str = "",
    **options: Any,
) -> Any:
    """Declare a flag with a value.

    Args:
        flags: names such as `-p` and `--partitions`.
        help: its purpose.
        default: the value without the flag.
        group: the title in the help under which the flag appears.
        one_of: a word; exactly one of the flags with this word must be given.
        at_most_one_of: a word; at most one of the flags with this word may be given.
        options: what else `argparse.add_argument` takes: type, choices, metavar, required.
    """
    options |= {"default": default, "help": help}
    return field(
        default=default, metadata={_KEY: _Argument(flags, options, group, one_of, at_most_one_of)}
    )


def switch(
    *flags: str,
    help: str,  # noqa: A002
    group: str = "",
    one_of: str = "",
    at_most_one_of: str = "",
) -> Any:
    """Declare a flag without a value: False unless it is given."""
    options = {"action": "store_true", "help": help}
    return field(
        default=False, metadata={_KEY: _Argument(flags, options, group, one_of, at_most_one_of)}
    )


def repeated(
    *flags: str,
    help: str,  # noqa: A002
    group: str = "",
    **options: Any,
) -> Any:
    """Declare a flag that may be given several times: a tuple of its values."""
    # Not with a default: argparse would add to it.
    options |= {"action": "append", "help": help}
    return field(default=(), metadata={_KEY: _Argument(flags, options, group)})


def positional(
    metavar: str,
    help: str,  # noqa: A002
    *,
    nargs: str | None = None,
    **options: Any,
) -> Any:
    """Declare an argument without a flag; a tuple if it may be several."""
    options |= {"metavar": metavar, "help": help, "nargs": nargs}
    default: Any = {"?": None, "*": (), argparse.REMAINDER: ()}.get(nargs or "", MISSING)
    return field(default=default, metadata={_KEY: _Argument((), options)})


def part(
    cls: type[DataclassInstance],
    title: str = "",
    description: str | None = None,
    **defaults: Any,
) -> Any:
    """Declare arguments that are a class of their own.

    Args:
        cls: declares them.
        title: in the help, for a group of their own.
        description: follows the title.
        defaults: by field, where this command has other defaults than the class.
    """
    return field(
        default_factory=partial(cls, **defaults),
        metadata={_KEY: _Part(cls, title, description, defaults)},
    )


def custom(
    add: Callable[[argparse.ArgumentParser], None], read: Callable[[Mapping[str, Any]], Any]
) -> Any:
    """Declare flags that another module adds to the parser and reads."""
    return field(default_factory=lambda: read({}), metadata={_KEY: _Custom(add, read)})


def add_arguments(parser: argparse.ArgumentParser, cls: type[DataclassInstance]) -> None:
    """Give a parser the arguments of a class."""
    _add(parser, parser, _Part(cls, "", None, {}), "", {})


def read_arguments(cls: type[T], parsed: Mapping[str, Any], prefix: str = "") -> T:
    """Create an argument class from the values that a parser has read."""
    values: dict[str, Any] = {}
    for item in fields(cls):
        declared = item.metadata.get(_KEY)
        if isinstance(declared, _Part):
            values[item.name] = read_arguments(declared.cls, parsed, f"{prefix}{item.name}.")
        elif isinstance(declared, _Custom):
            values[item.name] = declared.read(parsed)
        else:
            values[item.name] = _value(parsed[prefix + item.name], item.default)
    return cls(**values)


def _value(value: object, default: object) -> object:
    if isinstance(value, list):
        return tuple(value)  # argument classes are frozen
    return default if value is None and default is not MISSING else value


def _add(
    parser: argparse.ArgumentParser,
    target: argparse.ArgumentParser | argparse._ArgumentGroup,
    arguments: _Part,
    prefix: str,
    groups: dict[str, argparse._ArgumentGroup],
) -> None:
    for item in fields(arguments.cls):
        declared = item.metadata.get(_KEY)
        if isinstance(declared, _Part):
            below = target
            if declared.title:
                below = parser.add_argument_group(declared.title, declared.description)
            _add(parser, below, declared, f"{prefix}{item.name}.", groups)
        elif isinstance(declared, _Custom):
            declared.add(parser)
        elif isinstance(declared, _Argument):
            if item.name in arguments.defaults:
                own = {**declared.options, "default": arguments.defaults[item.name]}
                declared = replace(declared, options=own)
            _add_one(_group(parser, target, declared, groups), declared, item.name, prefix)


def _group(
    parser: argparse.ArgumentParser,
    target: argparse.ArgumentParser | argparse._ArgumentGroup,
    declared: _Argument,
    groups: dict[str, argparse._ArgumentGroup],
) -> argparse.ArgumentParser | argparse._ArgumentGroup:
    """Return the parser or group to add an argument to; create a missing group."""
    name = declared.one_of or declared.at_most_one_of or declared.group
    if not name:
        return target
    if name not in groups:
        groups[name] = (
            parser.add_argument_group(name)
            if name == declared.group
            else target.add_mutually_exclusive_group(required=bool(declared.one_of))
        )
    return groups[name]


def _add_one(
    target: argparse.ArgumentParser | argparse._ArgumentGroup,
    declared: _Argument,
    name: str,
    prefix: str,
) -> None:
    if not declared.flags:
        target.add_argument(name, **declared.options)
        return
    options = dict(declared.options)
    if not options.keys() & {"metavar", "choices"} and options.get("action") != "store_true":
        options["metavar"] = name.upper()
    target.add_argument(*declared.flags, dest=prefix + name, **options)
