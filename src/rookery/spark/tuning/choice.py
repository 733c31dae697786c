"""Which tunings a session has: those that the setting `spark.rookery.tuning` names.

A tuning is a module of this folder with a `TUNING`. The folder is scanned, so a new one is a new
file. With a pyspark that a tuning was not checked with, it does nothing, and a warning says so.
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
"""The Spark setting with the names, separated by commas; `all` stands for every one."""
ALL: Final = "all"
OWN: Final = "rows-once,worker-daemon"
"""What `rookery pipeline` and `rookery job` use, whose processes are our own programs.

Not `arrow-unchecked`: Python code of users may run there. Not `early-connect`: they use no streams.
"""

PATH: Final = "PYTHONPATH"


@dataclass(frozen=True, slots=True)
class Tuning:
    """One change to Spark's internals."""

    name: str
    checked: tuple[str, ...]
    """The pyspark versions it is known to work with, as `major.minor`."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Spark settings that turn it on; they are fixed once Spark has started."""
    extension: Extension | None = None
    """A class for Spark's planner."""
    folder: Path | None = None
    """A folder for the `PYTHONPATH` of the Pythons that Spark starts."""


def choose(text: str, version: str) -> tuple[Tuning, ...]:
    """Return the tunings that a setting names, without those not checked with a pyspark.

    Raises:
        ConfigError: there is no tuning of that name.
    """
    known = tunings()
    names = {name.strip() for name in text.split(",")} - {""}
    if unknown := names - known.keys() - {ALL}:
        raise ConfigError(
            f"{SETTING}: there is no {', '.join(sorted(unknown))}; there are {', '.join(known)}"
        )
    wanted = [one for name, one in known.items() if name in names or ALL in names]
    return tuple(one for one in wanted if _is_checked(one.name, one.checked, version))


@cache
def tunings() -> dict[str, Tuning]:
    """Return every tuning by its name."""
    package = __name__.rpartition(".")[0]
    modules = (
        import_module(f"{package}.{module.name}")
        for module in iter_modules([str(Path(__file__).parent)])
        if not module.ispkg
    )
    found: list[Tuning] = [module.TUNING for module in modules if hasattr(module, "TUNING")]
    return {one.name: one for one in sorted(found, key=lambda one: one.name)}


@cache
def _is_checked(name: str, checked: tuple[str, ...], version: str) -> bool:
    """Tell whether a tuning may be used, and warn once if it may not."""
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
    """Return a `PYTHONPATH` with the folders of tunings in front, or what it was before."""
    folders = [str(one.folder) for one in tunings if one.folder]
    return os.pathsep.join([*folders, *([before] if before else [])]) if folders else before
