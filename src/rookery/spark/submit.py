"""Run a program on a Spark cluster whose hosts have Spark, but not Rookery.

The driver runs in the packed environment, too: Spark plans a source with the same path to Python
that it reads with, so that path, `./environment/bin/python`, must be right on both sides.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from rookery.errors import ConfigError
from rookery.spark.checkpoint import exported
from rookery.spark.drivercopy import unpack_for_driver
from rookery.spark.java import find_java
from rookery.spark.pack import FOLDER, PYTHON
from rookery.spark.session import choose_tunings, settings_for
from rookery.spark.tuning.choice import python_path

DEFAULT_FILE: Final = "rookery.toml"
"""What a process reads if no other file is named: on an executor, from its own folder."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A program, and where and how it is to run."""

    program: Path
    archive: Path
    master: str
    arguments: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    """Win over those that `session` would make."""
    folder: Path = Path()
    """Where the driver runs, and the archive is unpacked for it."""
    config: Path | None = None
    """A rookery.toml that goes to all hosts, so that programs name clusters and no secrets."""

    def __post_init__(self) -> None:
        """Refuse a file that would not be found where it arrives."""
        if self.config is not None and self.config.name != DEFAULT_FILE:
            raise ConfigError(f"{self.config}: it must be called {DEFAULT_FILE}, as hosts seek it")

    def command(self) -> list[str]:
        """Return the command line of spark-submit."""
        tunings = choose_tunings(self.settings)
        settings = {**settings_for(self.master, tunings), **self.settings}
        return [
            str(_spark_submit()),
            *("--master", self.master),
            *("--archives", f"{self.archive.absolute()}#{FOLDER}"),
            *(("--files", str(self.config.absolute())) if self.config else ()),
            *(word for item in settings.items() for word in ("--conf", "=".join(item))),
            str(self.program.absolute()),
            *self.arguments,
        ]

    def environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment for it, made from another."""
        made = {**environ, "JAVA_HOME": str(find_java(environ)), "PYSPARK_PYTHON": PYTHON}
        # Spark would take this one for sources, and on the executors as well.
        made.pop("PYSPARK_DRIVER_PYTHON", None)
        path = python_path(choose_tunings(self.settings), environ.get("PYTHONPATH"))
        if path is not None:
            made["PYTHONPATH"] = path
        if self.config:
            made["ROOKERY_CONFIG"] = str(self.config.absolute())
        return {**made, **exported(self.master, self.settings)}

    def recipe(self, environ: Mapping[str, str]) -> str:
        """Return the same as commands for a shell whose environment that is."""
        here = shlex.quote(str(self.folder))
        archive = shlex.quote(str(self.archive.absolute()))
        made = self.environ(environ)
        unset = [word for name in sorted(environ.keys() - made.keys()) for word in ("-u", name)]
        added = [f"{name}={made[name]}" for name in made if made[name] != environ.get(name)]
        return (
            f"cd {here} && mkdir -p {FOLDER} && tar -xzf {archive} -C {FOLDER}\n"
            f"{shlex.join(['env', *unset, *added, *self.command()])}"
        )

    def prepare(self) -> None:
        """Unpack the archive for the driver, unless that was done already.

        Raises:
            ConfigError: there is no such archive, or something else stands in its place.
        """
        unpack_for_driver(self.archive, self.folder)


def _spark_submit() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError('pyspark is not installed: pip install "rookery[spark]"')
    return Path(spec.origin).parent / "bin" / "spark-submit"
