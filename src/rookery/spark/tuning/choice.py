"""Selects the tunings of a session: those named by the setting `spark.rookery.tuning`.

A tuning is a module in this folder with a `TUNING`. The folder is scanned, so each new module is
found. A tuning that was not checked with the installed pyspark is ignored with a warning.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Final

from rookery.errors import ConfigError
from rookery.spark.planner import Extension

SETTING: Final = "spark.rookery.tuning"
"""The Spark setting with comma-separated names; `all` selects every tuning."""
ALL: Final = "all"
OWN: Final = "rows-once,worker-daemon"
"""The tunings of `rookery pipeline` and `rookery job`, whose processes are Rookery's programs.

`arrow-unchecked` is excluded because user Python code may run there. `early-connect` is excluded
because these programs use no streams.
"""

PATH: Final = "PYTHONPATH"


@dataclass(frozen=True, slots=True)
class Tuning:
    """One change to Spark's internals."""

    name: str
    checked: tuple[str, ...]
    """The pyspark versions it is known to work with, as `major.minor`."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Spark settings that enable it; they cannot change after Spark has started."""
    extension: Extension | None = None
    """A class for Spark's planner."""
    folder: Path | None = None
    """A folder for the `PYTHONPATH` of the Python processes that Spark starts."""


def choose(text: str, version: str) -> tuple[Tuning, ...]:
    """Return the tunings that a setting names and that were checked with a pyspark version.

    Raises:
        ConfigError: there is no tuning of that name.
    """
    known = tunings()
    names = {name.strip() for name in text.split(",")} - {""}
    if unknown := names - known.keys() - {ALL}:
        raise ConfigError(
            f"{SETTING}: there is no {', '.join(sorted(unknown))}; there are {', '.join(known)}"
        )
    wanted = [tuning for name, tuning in known.items() if name in names or ALL in names]
    return tuple(tuning for tuning in wanted if _is_checked(tuning.name, tuning.checked, version))


@cache
def tunings() -> dict[str, Tuning]:
    """Return every tuning by its name."""
    package = __name__.rpartition(".")[0]
    modules = (
        import_module(f"{package}.{module.name}")
        for module in iter_modules([str(Path(__file__).parent)])
        if not module.ispkg
    )
    imported: list[Tuning] = [module.TUNING for module in modules if hasattr(module, "TUNING")]
    return {tuning.name: tuning for tuning in sorted(imported, key=lambda tuning: tuning.name)}


@cache
def _is_checked(name: str, checked: tuple[str, ...], version: str) -> bool:
    """Return whether a tuning can be used, and warn once if it cannot."""
    if ".".join(version.split(".")[:2]) in checked:
        return True
    warnings.warn(
        f"{SETTING}={name} does nothing: it was checked with pyspark "
        f"{' and '.join(checked)}, and this is {version}",
        RuntimeWarning,
        stacklevel=6,
    )
    return False


def python_path(tunings: Iterable[Tuning], before: str | None) -> str | None:
    """Return a `PYTHONPATH` with the folders of tunings first; unchanged if there are none."""
    folders = [str(tuning.folder) for tuning in tunings if tuning.folder]
    return os.pathsep.join([*folders, *([before] if before else [])]) if folders else before
