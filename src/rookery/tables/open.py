"""Opens a table from its description; the format is the name of a module in `formats`."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Final, Protocol, cast

from rookery.errors import ConfigError
from rookery.tables.port import Table, TableSpec

_FORMATS: Final = "rookery.tables.formats"


class Format(Protocol):
    """The interface of a module in `tables/formats`."""

    def open(self, spec: TableSpec) -> Table:
        """Return the table; its first commit creates it."""


def formats() -> list[str]:
    """Return the names of all formats."""
    return sorted(info.name for info in iter_modules(import_module(_FORMATS).__path__))


def open_table(spec: TableSpec) -> Table:
    """Open a table, which may not exist yet.

    Raises:
        ConfigError: there is no such format, or its packages are not installed.
    """
    is_word = re.fullmatch(r"[a-z][a-z0-9]*", spec.format) is not None
    if not is_word or find_spec(f"{_FORMATS}.{spec.format}") is None:
        raise ConfigError(
            f"table format {spec.format!r}: there is none; choose from {', '.join(formats())}"
        )
    try:
        module = cast("Format", import_module(f"{_FORMATS}.{spec.format}"))
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"table format {spec.format!r} needs the package {error.name!r};"
            " pip install 'rookery[spark]'"
        ) from error
    return module.open(spec)
