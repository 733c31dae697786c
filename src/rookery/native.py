"""Which modules run as compiled code, and which fall back to their Python twins.

Native code is optional: where it was not built, the twin does the same work more slowly. The
user is warned once, for the first missing module; `rookery doctor` prints `report()`.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from types import ModuleType
from typing import NamedTuple


class NativeStatus(NamedTuple):
    """One compiled module, its twin, and why the twin is in use (empty if it is not)."""

    native: str
    twin: str
    reason: str

    @property
    def is_compiled(self) -> bool:
        """Whether the compiled module is the one in use."""
        return not self.reason


_loaded: dict[str, NativeStatus] = {}
_modules: dict[str, ModuleType] = {}


def load(native: str, twin: str) -> ModuleType:
    """Return the compiled module of that dotted name, or else its Python twin."""
    if native not in _modules:
        _modules[native] = _load(native, twin)
    return _modules[native]


def report() -> list[NativeStatus]:
    """List the modules that were loaded so far, sorted by name."""
    return [_loaded[name] for name in sorted(_loaded)]


def _load(native: str, twin: str) -> ModuleType:
    try:
        module = import_module(native)
    except ImportError as error:
        # An ImportError also covers a module built for another interpreter, so its text is kept.
        _warn_once(native)
        _loaded[native] = NativeStatus(native, twin, str(error) or "it cannot be imported")
        return import_module(twin)
    _loaded[native] = NativeStatus(native, twin, "")
    return module


def _warn_once(native: str) -> None:
    if all(status.is_compiled for status in _loaded.values()):
        warnings.warn(
            f"Rookery runs in pure Python: {native} is not compiled, so reading and writing are "
            "ten times slower or more. Run `rookery doctor` to see what is missing and what to do.",
            RuntimeWarning,
            stacklevel=4,
        )
