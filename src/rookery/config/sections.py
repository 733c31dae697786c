"""The tables that a configuration file can hold: one for each server, and the named clusters.

A server is a package with a module `serve`. Its settings have the table of the package's name:
`rookery/broker/serve.py` reads `[broker]`.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from pathlib import Path
from typing import Final

import rookery

CLUSTERS: Final = "clusters"
"""The table of clusters by name."""


@cache
def sections() -> tuple[str, ...]:
    """Return the names of all tables; the packages are not imported."""
    folders = [Path(folder) for folder in rookery.__path__]
    servers = [
        module.name
        for module in pkgutil.iter_modules(rookery.__path__)
        if any((folder / module.name / "serve.py").exists() for folder in folders)
    ]
    return (*servers, CLUSTERS)
