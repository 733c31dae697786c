"""Creates the filters of a virtual cluster from their settings.

The type of a filter is the name of a file in `proxy/filters`, or of an entry point of the group
`rookery.filters` in an installed package.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final

from rookery.errors import ConfigError
from rookery.proxy import filters
from rookery.proxy.filterapi import Filter
from rookery.proxy.settings import FilterSettings, VirtualClusterSettings

GROUP: Final = "rookery.filters"
"""The group of entry points of filters in other packages."""


def filter_types() -> list[str]:
    """Return the types of filters that can be configured."""
    own = [module.name for module in pkgutil.iter_modules(filters.__path__)]
    return sorted({*own, *(point.name for point in entry_points(group=GROUP))})


def load_filters(
    settings: VirtualClusterSettings, definitions: Mapping[str, FilterSettings]
) -> list[Filter]:
    """Create the filters of a virtual cluster, in order.

    Raises:
        ConfigError: there is no such filter, or its options cannot be used.
    """
    return [_create(name, definitions.get(name)) for name in settings.filters]


def _create(name: str, definition: FilterSettings | None) -> Filter:
    kind = definition.type or name if definition is not None else name
    filter_class = find_class(kind, name)
    options = definition.options if definition is not None else {}
    unknown = sorted(options.keys() - filter_class.OPTIONS.keys())
    if unknown:
        known = ", ".join(filter_class.OPTIONS) or "none"
        raise ConfigError(
            f"{name}: the filter {kind} has no option {unknown[0]!r}; it has: {known}",
            name="filters",
        )
    try:
        return filter_class(options)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}", name="filters") from error


def find_class(kind: str, name: str) -> type[Filter]:
    """Return the class of a type of filters.

    Args:
        kind: the type.
        name: the name of the filter, for messages.

    Raises:
        ConfigError: there is none.
    """
    if kind in {module.name for module in pkgutil.iter_modules(filters.__path__)}:
        return _only_class(import_module(f"{filters.__name__}.{kind}").__dict__)
    for point in entry_points(group=GROUP):
        if point.name == kind:
            loaded = point.load()
            if isinstance(loaded, type) and issubclass(loaded, Filter):
                return loaded
            raise ConfigError(
                f"{name}: the entry point {kind} is not a class of filters", name="filters"
            )
    known = ", ".join(filter_types())
    raise ConfigError(f"{name}: there is no filter {kind!r}; known: {known}", name="filters")


def _only_class(names: Mapping[str, object]) -> type[Filter]:
    """Return the class of filters that a module defines."""
    [filter_class] = [
        value
        for value in names.values()
        if isinstance(value, type)
        and issubclass(value, Filter)
        and value.__module__ == names["__name__"]
    ]
    return filter_class
