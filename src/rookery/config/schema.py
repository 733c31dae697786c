"""Lists the settings of a settings class, with their external names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args, get_origin, get_type_hints

from rookery.config.docstrings import field_docs
from rookery.config.values import ValueKind, kind_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

DEST_PREFIX = "setting "
"""The prefix of flag values among parsed arguments."""
TableNames = tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
"""The paths of fields that hold named tables, each with the names that files give to the tables.

A named table can hold such fields itself: `clusters`, `orders`, `listeners`."""
NO_DEFAULT = object()
"""Replaces a default: the user must set the value."""


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """One value that a user can set.

    In a field's `metadata`: `secret` (never shown), `min` and `max` (of numbers), and `setting:
    False` for fields that users cannot set.
    """

    path: tuple[str, ...]
    """The names of the fields that lead to it; more than one in a nested class."""
    kind: ValueKind
    default: object
    doc: str
    is_secret: bool

    @property
    def key(self) -> str:
        """Its key in the file: dotted if it is in a nested table."""
        return ".".join(name.replace("_", "-") for name in self.path)

    @property
    def flag(self) -> str:
        """Its flag on the command line."""
        return "--" + "-".join(self.path).replace("_", "-")

    @property
    def dest(self) -> str:
        """The name of its flag's value among parsed arguments, distinct from all others."""
        return DEST_PREFIX + ".".join(self.path)

    def variable(self, section: str) -> str:
        """Return its environment variable."""
        return re.sub("[-.]", "_", "_".join(("ROOKERY", section, *self.path)).upper())

    def format_value(self, value: object) -> str:
        """Return a value as error messages may show it."""
        return "a secret value" if self.is_secret else repr(value)


def table_fields(cls: type[DataclassInstance]) -> dict[str, type[DataclassInstance]]:
    """Return the fields that hold named tables (`dict[str, …]`), with the class of a table."""
    hints = get_type_hints(cls)
    return {
        field.name: get_args(hints[field.name])[1]
        for field in _fields(cls)
        if _holds_tables(hints[field.name])
    }


@cache
def settings_of(cls: type[DataclassInstance], names: TableNames = ()) -> tuple[Setting, ...]:
    """List the settings of a class, in the order of its fields.

    Args:
        cls: the settings class.
        names: the names of tables in fields that hold named tables; without them, such fields have
            no settings.

    Raises:
        TypeError: a field's type cannot be a setting, or two settings share a name.
    """
    settings = list(_walk(cls, (), NO_DEFAULT))
    for path, table_names in names:
        table = _table_class(cls, path)
        for name in table_names:
            settings += _walk(table, (*path, name), NO_DEFAULT)
    by_flag: dict[str, Setting] = {}
    for setting in settings:
        other = by_flag.setdefault(setting.flag, setting)
        if other is not setting:
            raise TypeError(
                f"{cls.__name__}: {setting.key} and {other.key} are both {setting.flag}"
            )
    return tuple(settings)


def _table_class(cls: type[DataclassInstance], path: tuple[str, ...]) -> type[DataclassInstance]:
    """Return the class of the tables in a field; fields and names take turns in its path."""
    for field in path[::2]:
        cls = table_fields(cls)[field]
    return cls


def build(cls: type[T], values: dict[tuple[str, ...], object]) -> T:
    """Create the settings object from values by path."""
    hints = get_type_hints(cls)
    arguments: dict[str, object] = {}
    tables = table_fields(cls)
    for field in _fields(cls):
        if field.name in tables:
            arguments[field.name] = _build_tables(field.name, tables[field.name], values)
        elif dataclasses.is_dataclass(hint := hints[field.name]):
            inner = {path[1:]: value for path, value in values.items() if path[0] == field.name}
            arguments[field.name] = build(cast("type[DataclassInstance]", hint), inner)
        else:
            arguments[field.name] = values[field.name,]
    return cast("Callable[..., T]", cls)(**arguments)


def _build_tables(
    field: str, cls: type[DataclassInstance], values: dict[tuple[str, ...], object]
) -> dict[str, object]:
    """Create the settings of each named table of a field."""
    inner = {path[1:]: value for path, value in values.items() if path[0] == field}
    names = dict.fromkeys(path[0] for path in inner)
    return {
        name: build(cls, {path[1:]: value for path, value in inner.items() if path[0] == name})
        for name in names
    }


def _walk(
    cls: type[DataclassInstance], above: tuple[str, ...], example: object
) -> Iterator[Setting]:
    """List the settings of a class; an example, if given, provides the defaults."""
    hints, docs = get_type_hints(cls), field_docs(cls)
    for field in _fields(cls):
        if _holds_tables(hints[field.name]):
            continue
        hint, path = hints[field.name], (*above, field.name)
        default = _default(field) if example is NO_DEFAULT else getattr(example, field.name)
        if dataclasses.is_dataclass(hint):
            yield from _walk(cast("type[DataclassInstance]", hint), path, default)
            continue
        try:
            kind = kind_of(hint, field.metadata.get("min"), field.metadata.get("max"))
        except TypeError as error:
            raise TypeError(f"{cls.__name__}.{field.name}: {error}") from None
        is_secret = bool(field.metadata.get("secret"))
        yield Setting(path, kind, default, docs.get(field.name, ""), is_secret)


def _holds_tables(hint: object) -> bool:
    return get_origin(hint) is dict and dataclasses.is_dataclass(get_args(hint)[1])


def _fields(cls: type[DataclassInstance]) -> list[dataclasses.Field[Any]]:
    fields = dataclasses.fields(cls)
    return [field for field in fields if field.init and field.metadata.get("setting", True)]


def _default(field: dataclasses.Field[Any]) -> object:
    if field.default is not MISSING:
        return field.default
    return NO_DEFAULT if field.default_factory is MISSING else field.default_factory()
