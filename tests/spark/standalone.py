"""A standalone Spark cluster: a master, and workers that have Spark but not rookery.

Each worker has a folder of its own and sees of this host's programs only Java, Python and the
shell's; its Python has no packages.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import sysconfig
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark

from rookery.spark.java import find_java
from rookery.testing.ports import HOST, free_port
from rookery.testing.process import LoggedProcess
from rookery.testing.wait import wait_until

_HOME: Final = Path(pyspark.__file__).parent
_PATIENCE: Final = 300.0
_LOOK_SECONDS: Final = 0.1


class StandaloneSpark:
    """A master and its workers; they live until the block ends."""

    def __init__(self, folder: Path, *, workers: int = 2) -> None:
        """Choose ports; start nothing."""
        self.folder = folder
        self.master = f"spark://{HOST}:{free_port()}"
        self._web = free_port()
        self._workers = [folder / f"worker-{number}" for number in range(1, workers + 1)]
        self._processes = ExitStack()

    def __enter__(self) -> Self:
        with self._processes:
            port = self.master.rpartition(":")[2]
            flags = ["--host", HOST, "--port", port, "--webui-port", str(self._web)]
            self._start("master.Master", self.folder / "master", flags)
            for folder in self._workers:
                flags = ["--host", HOST, "--webui-port", "0", "--cores", "1", "--memory", "1g"]
                flags += ["--work-dir", str(folder / "work"), self.master]
                self._start("worker.Worker", folder, flags)
            self._wait_for_workers()
            self._processes = self._processes.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._processes.close()

    def words(self) -> str:
        """Return the last that all of them and their executors have said."""
        logs = [*self.folder.glob("*.log"), *self.folder.glob("worker-*/work/*/*/std*")]
        return "\n".join(f"{log}:\n{log.read_text(errors='replace')[-3000:]}" for log in logs)

    def _start(self, name: str, folder: Path, flags: Sequence[str]) -> None:
        folder.mkdir(parents=True)
        program = [str(_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *flags]
        clean = ["/usr/bin/env", "-i", "-C", str(folder), *_environ(folder)]
        process = LoggedProcess([*clean, *program], folder.with_name(folder.name + ".log"))
        self._processes.callback(process.stop, 10.0)

    def _wait_for_workers(self) -> None:
        try:
            wait_until(
                self._alive,
                accepts=len(self._workers).__eq__,
                seconds=_PATIENCE,
                pause=_LOOK_SECONDS,
            )
        except TimeoutError:
            raise TimeoutError(f"the workers did not come:\n{self.words()}") from None

    def _alive(self) -> int:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._web}/json/", timeout=30) as answer:
                workers = json.load(answer)["workers"]
                return sum(1 for worker in workers if worker["state"] == "ALIVE")
        except (OSError, json.JSONDecodeError):
            # Spark opens the port first and its pages one by one; until this one, "/" answers.
            return 0


def bare_python(folder: Path) -> Path:
    """Make a folder for the PATH in which Python is a program without any packages."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    real = shutil.which(name, path=f"{sys.base_prefix}/bin")
    script = folder / name
    # -S leaves out site-packages; what PYTHONPATH names is still seen.
    script.write_text(f'#!/bin/sh\nexec {real} -S "$@"\n')
    script.chmod(0o755)
    return folder


def driver_python(folder: Path) -> tuple[Path, dict[str, str]]:
    """Make a Python with this environment, for one host: return its path, and its variables.

    All hosts of the tests share their files. So the program refuses to run in a process that does
    not descend from the driver, as if it were missing there.
    """
    site, python = Path(sysconfig.get_path("purelib")), folder / "bin" / "python"
    (folder / site.relative_to(sys.prefix)).parent.mkdir(parents=True)
    (folder / site.relative_to(sys.prefix)).symlink_to(site)
    (folder / "pyvenv.cfg").write_text(f"home = {sys.base_prefix}/bin\n")
    python.parent.mkdir()
    real = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    python.write_text(
        '#!/bin/bash\n[ -n "$DRIVER_HOST" ] || { echo "$0: not on this host" >&2; exit 127; }\n'
        f'exec -a "$0" {real} "$@"\n'
    )
    python.chmod(0o755)
    # Spark sessions of the tests leave the path of their own Python in the environment.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    return python, {**clean, "DRIVER_HOST": "here"}


def _environ(folder: Path) -> list[str]:
    path = f"{bare_python(folder / 'bin')}:/usr/bin:/bin"
    return [
        f"PATH={path}",
        f"JAVA_HOME={find_java(os.environ)}",
        f"SPARK_HOME={_HOME}",
        f"SPARK_LOCAL_IP={HOST}",
        f"HOME={folder}",
        "SPARK_DAEMON_MEMORY=256m",
        "SPARK_MASTER_OPTS=-Dspark.master.rest.enabled=false",
        "SPARK_DAEMON_JAVA_OPTS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    ]
