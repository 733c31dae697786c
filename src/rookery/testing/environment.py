"""Third-party Python packages, installed once in a separate environment and cached.

A program that runs there has neither this project nor the versions of its test environment.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rookery.errors import Unavailable
from rookery.testing.jars import Progress, hold_lock

_PYTHON: Final = f"py{sys.version_info.major}{sys.version_info.minor}"


@dataclass(frozen=True, slots=True)
class Environment:
    """A name for the cache folder, and the packages in the form that pip takes."""

    name: str
    packages: tuple[str, ...]


SPARK: Final = Environment("spark-4.1.4", ("pyspark==4.1.4",))
"""The newest Spark for which Maven Central has a runtime of both Iceberg and Delta."""
DUCKDB: Final = Environment(
    "duckdb-1.5.5",
    (
        "duckdb==1.5.5",
        "duckdb-extension-avro==1.5.5",
        "duckdb-extension-delta==1.5.5",
        "duckdb-extension-iceberg==1.5.5",
        "pytz",
    ),
)
"""The newest DuckDB whose extensions for Iceberg and Delta are on PyPI. It needs `pytz` to return
timestamps, and `avro` to read Iceberg."""


def install_environment(
    environment: Environment, cache: Path | None = None, *, progress: Progress | None = None
) -> Path:
    """Return the Python of an environment, which is made the first time.

    Any number of processes may ask at once: one installs it, the others wait.

    Args:
        environment: what to install.
        cache: where to keep it, `~/.cache/rookery` unless given.
        progress: receives a line of text when something is installed; standard error unless given.

    Raises:
        Unavailable: pip could not install a package.
    """
    cache = cache or Path.home() / ".cache" / "rookery"
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / f"{environment.name}-{_PYTHON}"
    python = target / "bin" / "python"
    with hold_lock(cache / f"{target.name}.lock"):
        # The link is broken if the Python that created it has been removed.
        if not python.exists():
            (progress or sys.stderr.write)(f"Installing {environment.name} into {target}\n")
            _install(environment, target)
    return python


def _install(environment: Environment, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".installing-", dir=target.parent) as folder:
        work = Path(folder) / "environment"
        _run([sys.executable, "-m", "venv", "--without-pip", str(work)])
        python = str(work / "bin" / "python")
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
        _run([*pip, "--disable-pip-version-check", *environment.packages])
        # A rename is atomic: a killed process leaves no incomplete environment.
        work.rename(target)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
