"""The jars of a real Apache Kafka, fetched once with Maven and kept in a cache folder."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from rookery.errors import ConfigError, Unavailable

POM: Final = Path(__file__).parent / "maven" / "kafka.xml"
VERSION: Final = re.findall(r"<kafka.version>(.+?)</", POM.read_text("utf-8"))[0]
"""The version of Apache Kafka that the pom names."""

_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_PACKAGES: Final = {"java": "default-jre-headless", "mvn": "maven"}

Progress = Callable[[str], object]


def jars(cache: Path | None = None, *, progress: Progress | None = None) -> Path:
    """Return the folder with Kafka's jars, fetching them the first time.

    Any number of processes may ask at once: one fetches, the others wait for it.

    Args:
        cache: where to keep them, `~/.cache/rookery` unless told.
        progress: is given a line of text now and then; standard error unless told.

    Raises:
        ConfigError: Maven is not installed.
        Unavailable: Maven could not fetch them.
    """
    cache = cache or Path.home() / ".cache" / "rookery"
    target = cache / f"kafka-{VERSION}"
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / f"kafka-{VERSION}.lock"):
        if not target.is_dir():
            _fetch(target, progress or sys.stderr.write)
    return target


def program(name: str) -> str:
    """Return the path of `java` or `mvn`, or say what to install."""
    path = shutil.which(name)
    if path is None:
        raise ConfigError(
            f"`{name}` is not on the PATH and a real Kafka needs it: "
            f"run scripts/install-peers, or apt-get install {_PACKAGES[name]}"
        )
    return path


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the kernel lets go of it when the process dies
        yield


def _fetch(target: Path, progress: Progress) -> None:
    maven = program("mvn")
    progress(f"Fetching Apache Kafka {VERSION} (about 100 jars, 127 MB) into {target}\n")
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=target.parent) as folder:
        work = Path(folder)
        # Maven treats the pom's folder as its own, and ours may be read-only.
        pom = Path(shutil.copy(POM, work / "pom.xml"))
        _run_maven([maven, "-B", "-f", str(pom), _COPY, *_options(work / "libs")], progress)
        # A rename is all or nothing: whoever sees the folder sees it whole.
        (work / "libs").rename(target)
    progress(f"Fetched {len(list(target.glob('*.jar')))} jars\n")


def _options(libs: Path) -> list[str]:
    return ["-DincludeScope=runtime", f"-DoutputDirectory={libs}"]


def _run_maven(command: list[str], progress: Progress) -> None:
    tail: deque[str] = deque(maxlen=20)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as maven:
        _follow(maven.stdout, tail, progress)
    if maven.returncode:
        raise Unavailable(
            f"Maven could not fetch Apache Kafka {VERSION} (exit status {maven.returncode}); "
            f"it said last:\n{''.join(tail)}"
        )


def _follow(output: IO[str] | None, tail: deque[str], progress: Progress) -> None:
    done = 0
    for line in output or ():
        tail.append(line)
        if "Downloaded" in line:
            done += 1
            if done % 50 == 0:
                progress(f"  {done} files downloaded\n")
