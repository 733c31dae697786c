"""Lazy exports: a public package offers names of other modules and imports them on first use.

The `__init__.py` of a public package lists its names three times. `__all__` declares them. The
imports below `if TYPE_CHECKING` give type checkers and editors the real types. The table passed to
`lazy_exports` gives Python the modules. `tests/architecture/test_public_api.py` compares the three.

So `import rookery.client` loads neither asyncio nor Arrow; `rookery.client.Client` does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module


def lazy_exports(
    package: str, names: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package.

    Args:
        package: the package's name.
        names: the public names, by the module that defines them.
    """
    homes = {name: module for module, defined in names.items() for name in defined}

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        # The next access finds the attribute and does not come here.
        setattr(sys.modules[package], name, value)
        return value

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return load, listed
