"""Clusters by name: `[clusters.prod]` in a file, so that nobody has to write addresses and secrets.

The settings of a cluster can come from the environment, too: `ROOKERY_CLUSTERS_PROD_STORE`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from rookery.config.load import DEFAULT, SECTIONS, config_files, load
from rookery.config.sources import TomlFile
from rookery.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

SECTION: Final = "clusters"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def load_cluster(
    cls: type[T],
    name: str,
    environ: Mapping[str, str] | None = None,
    files: list[Path] | None = None,
) -> T:
    """Load the settings of a cluster that users know by its name.

    Args:
        cls: the settings class.
        name: the table's name in `[clusters.<name>]`.
        environ: the environment; by default the process's own.
        files: TOML files; by default those of ROOKERY_CONFIG, or rookery.toml.

    Raises:
        ConfigError: there is no such cluster, or its settings cannot be used.
    """
    files = config_files(environ=environ) if files is None else files
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"cluster {name[:80]!r}: a name has 1 to 64 of a-z, A-Z, 0-9, '_', '-'")
    loaded = load(cls, f"{SECTION}.{name}", environ=environ, files=files, sections=SECTIONS)
    if all(source == DEFAULT for source in loaded.sources.values()):
        raise ConfigError(_unknown(name, files))
    return loaded.settings


def _unknown(name: str, files: list[Path]) -> str:
    known = sorted({one for path in files for one in TomlFile(path).names(SECTION)})
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    places = ", ".join(map(str, files)) or "no file (set ROOKERY_CONFIG, or write rookery.toml)"
    return f"cluster {name!r} is not configured: no table [{SECTION}.{name}] in {places}{hint}"
