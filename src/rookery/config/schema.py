"""Lists the settings of a settings class, with their external names."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_type_hints

from rookery.config.docstrings import field_docs
from rookery.config.values import ValueKind, kind_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

DEST_PREFIX = "setting "
"""The prefix of flag values among parsed arguments."""
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

    def shown(self, value: object) -> str:
        """Return a value as error messages may show it."""
        return "a secret value" if self.is_secret else repr(value)


@cache
def settings_of(cls: type[DataclassInstance]) -> tuple[Setting, ...]:
    """List the settings of a class, in the order of its fields.

    Raises:
        TypeError: a field's type cannot be a setting, or two settings share a name.
    """
    found = tuple(_walk(cls, (), NO_DEFAULT))
    names: dict[str, Setting] = {}
    for setting in found:
        other = names.setdefault(setting.flag, setting)
        if other is not setting:
            raise TypeError(
                f"{cls.__name__}: {setting.key} and {other.key} are both {setting.flag}"
            )
    return found


def build(cls: type[T], values: dict[tuple[str, ...], object]) -> T:
    """Create the settings object from values by path."""
    hints = get_type_hints(cls)
    arguments: dict[str, object] = {}
    for field in _fields(cls):
        if dataclasses.is_dataclass(hint := hints[field.name]):
            inner = {path[1:]: value for path, value in values.items() if path[0] == field.name}
            arguments[field.name] = build(cast("type[DataclassInstance]", hint), inner)
        else:
            arguments[field.name] = values[field.name,]
    return cast("Callable[..., T]", cls)(**arguments)


def _walk(
    cls: type[DataclassInstance], above: tuple[str, ...], example: object
) -> Iterator[Setting]:
    """List the settings of a class; an example, if given, provides the defaults."""
    hints, docs = get_type_hints(cls), field_docs(cls)
    for field in _fields(cls):
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


def _fields(cls: type[DataclassInstance]) -> list[dataclasses.Field[Any]]:
    fields = dataclasses.fields(cls)
    return [one for one in fields if one.init and one.metadata.get("setting", True)]


def _default(field: dataclasses.Field[Any]) -> object:
    if field.default is not MISSING:
        return field.default
    return NO_DEFAULT if field.default_factory is MISSING else field.default_factory()
