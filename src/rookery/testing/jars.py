"""Third-party jars, fetched once with Maven and cached: Kafka, Spark's connectors."""

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
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from rookery.errors import ConfigError, Unavailable

_POMS: Final = Path(__file__).parent / "maven"


@dataclass(frozen=True, slots=True)
class Bundle:
    """Jars that belong together, as one of our poms names them."""

    name: str
    title: str
    size: str

    @property
    def pom(self) -> Path:
        """Return the pom that lists them."""
        return _POMS / f"{self.name}.xml"

    @property
    def version(self) -> str:
        """Return the version that the pom names."""
        version = re.search(rf"<{self.name}.version>(.+?)</", self.pom.read_text("utf-8"))
        return version[1] if version else "unknown"

    @property
    def folder(self) -> str:
        """Return the name of the folder that they are kept in."""
        return f"{self.name}-{self.version}"


KAFKA: Final = Bundle("kafka", "Apache Kafka", "about 100 jars, 127 MB")
CONNECTOR: Final = Bundle("spark", "Spark's Kafka connector", "4 jars, 10 MB")
ICEBERG: Final = Bundle("iceberg", "Iceberg for Spark 4.1", "2 jars, 63 MB")
DELTA: Final = Bundle("delta", "Delta for Spark 4.1", "2 jars, 9 MB")
KROXYLICIOUS: Final = Bundle("kroxylicious", "Kroxylicious", "about 50 jars, 30 MB")

POM: Final = KAFKA.pom
VERSION: Final = KAFKA.version
"""The version of Apache Kafka that the pom names."""

_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_PACKAGES: Final = {"java": "default-jre-headless", "mvn": "maven"}

Progress = Callable[[str], object]


def jars(cache: Path | None = None, *, progress: Progress | None = None) -> Path:
    """Return the folder with Kafka's jars, fetching them the first time.

    Any number of processes may ask at once: one fetches, the others wait for it.

    Args:
        cache: where to keep them, by default `~/.cache/rookery`.
        progress: receives a line of text now and then; by default standard error.

    Raises:
        ConfigError: Maven is not installed.
        Unavailable: Maven could not fetch them.
    """
    return bundle_jars(KAFKA, cache, progress=progress)


def bundle_jars(
    bundle: Bundle, cache: Path | None = None, *, progress: Progress | None = None
) -> Path:
    """Return the folder with a bundle's jars; see `jars`."""
    cache = cache or Path.home() / ".cache" / "rookery"
    target = cache / bundle.folder
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with hold_lock(cache / f"{bundle.folder}.lock"):
        if not target.is_dir():
            _fetch(bundle, target, progress or sys.stderr.write)
    return target


def program(name: str) -> str:
    """Return the path of `java` or `mvn`; an error names the package to install."""
    path = shutil.which(name)
    if path is None:
        raise ConfigError(
            f"`{name}` is not on the PATH and a real Kafka needs it: "
            f"run scripts/install-peers, or apt-get install {_PACKAGES[name]}"
        )
    return path


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold a lock between processes while the block runs."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the kernel releases it when the process dies
        yield


def _fetch(bundle: Bundle, target: Path, progress: Progress) -> None:
    maven = program("mvn")
    progress(f"Fetching {bundle.title} {bundle.version} ({bundle.size}) into {target}\n")
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=target.parent) as folder:
        work = Path(folder)
        # Maven treats the pom's folder as its own, and ours may be read-only.
        pom = Path(shutil.copy(bundle.pom, work / "pom.xml"))
        command = [maven, "-B", "-f", str(pom), _COPY, *_options(work / "libs")]
        _run_maven(bundle, command, progress)
        # A rename is atomic: a process never sees an incomplete folder.
        (work / "libs").rename(target)
    progress(f"Fetched {len(list(target.glob('*.jar')))} jars\n")


def _options(libs: Path) -> list[str]:
    return ["-DincludeScope=runtime", f"-DoutputDirectory={libs}"]


def _run_maven(bundle: Bundle, command: list[str], progress: Progress) -> None:
    tail: deque[str] = deque(maxlen=20)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as maven:
        _follow(maven.stdout, tail, progress)
    if maven.returncode:
        raise Unavailable(
            f"Maven could not fetch {bundle.title} {bundle.version} "
            f"(exit status {maven.returncode}); it said last:\n{''.join(tail)}"
        )


def _follow(output: IO[str] | None, tail: deque[str], progress: Progress) -> None:
    done = 0
    for line in output or ():
        tail.append(line)
        if "Downloaded" in line:
            done += 1
            if done % 50 == 0:
                progress(f"  {done} files downloaded\n")
