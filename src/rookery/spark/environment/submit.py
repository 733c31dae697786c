"""Runs a program on a Spark cluster whose hosts have Spark, but not Rookery.

The driver also runs in the packed environment. Spark uses one path to Python for planning and
reading a source. So this path, `./environment/bin/python`, must be valid on both sides.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from rookery.errors import ConfigError
from rookery.spark.checkpoint import export_master
from rookery.spark.environment.drivercopy import unpack_for_driver
from rookery.spark.environment.pack import FOLDER, PYTHON
from rookery.spark.java import find_java
from rookery.spark.sparksession import choose_tunings, settings_for
from rookery.spark.tuning.choice import python_path

DEFAULT_FILE: Final = "rookery.toml"
"""The default configuration file; an executor reads it from its own folder."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A program, with the master, the settings and the files to run it."""

    program: Path
    archive: Path
    master: str
    arguments: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    """Override the default settings of `session`."""
    folder: Path = Path()
    """The folder in which the driver runs and the archive is unpacked."""
    config: Path | None = None
    """A rookery.toml that is sent to all hosts, so that programs contain no secrets."""

    def __post_init__(self) -> None:
        """Refuse a file that executors would not find by its name."""
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
        """Return the environment for the command, based on another one."""
        made = {**environ, "JAVA_HOME": str(find_java(environ)), "PYSPARK_PYTHON": PYTHON}
        # Spark would use this one for sources, on the executors as well.
        made.pop("PYSPARK_DRIVER_PYTHON", None)
        path = python_path(choose_tunings(self.settings), environ.get("PYTHONPATH"))
        if path is not None:
            made["PYTHONPATH"] = path
        if self.config:
            made["ROOKERY_CONFIG"] = str(self.config.absolute())
        return {**made, **export_master(self.master, self.settings)}

    def recipe(self, environ: Mapping[str, str]) -> str:
        """Return the equivalent shell commands for the given environment."""
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
        """Unpack the archive for the driver, unless it is already unpacked.

        Raises:
            ConfigError: the archive does not exist, or another folder has its name.
        """
        unpack_for_driver(self.archive, self.folder)


def _spark_submit() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError('pyspark is not installed: pip install "rookery[spark]"')
    return Path(spec.origin).parent / "bin" / "spark-submit"
