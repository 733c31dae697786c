"""Jars that tests fetch, once per host."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rookery.errors import ConfigError, Unavailable
from rookery.testing.jars import VERSION, jars, program

# Maven's part in these tests: note the call, take long enough to be overtaken, leave one jar.
_MAVEN = """#!/bin/sh
echo called >> "$(dirname "$0")/calls"
sleep 1
for word; do case $word in -DoutputDirectory=*) out=${word#*=};; esac; done
mkdir -p "$out" && echo jar > "$out/kafka.jar"
"""
_ASK = "import sys, pathlib; from rookery.testing.jars import jars; jars(pathlib.Path(sys.argv[1]))"


def _install(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    (folder / "mvn").write_text(text)
    (folder / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_concurrent_processes_fetch_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(tmp_path / "bin", _MAVEN, monkeypatch)
    ask = [sys.executable, "-c", _ASK, str(tmp_path / "cache")]

    askers = [subprocess.Popen(ask, stderr=subprocess.DEVNULL) for _ in range(3)]

    assert [asker.wait() for asker in askers] == [0, 0, 0]
    assert (tmp_path / "bin" / "calls").read_text() == "called\n"
    kept = tmp_path / "cache" / f"kafka-{VERSION}"
    assert [path.name for path in kept.iterdir()] == ["kafka.jar"]
    assert sorted(path.name for path in kept.parent.iterdir()) == [kept.name, f"{kept.name}.lock"]


def test_existing_jars_are_not_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"kafka-{VERSION}").mkdir()
    monkeypatch.setenv("PATH", "")

    assert jars(tmp_path) == tmp_path / f"kafka-{VERSION}"


def test_failed_fetch_is_reported_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(tmp_path / "bin", "#!/bin/sh\necho no route to anywhere; exit 3\n", monkeypatch)
    said: list[str] = []

    with pytest.raises(Unavailable, match=r"(?s)status 3.*no route to anywhere"):
        jars(tmp_path / "cache", progress=said.append)

    assert "Fetching Apache Kafka" in said[0]
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


@pytest.mark.parametrize(("name", "package"), [("java", "default-jre-headless"), ("mvn", "maven")])
def test_missing_program_names_its_package(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")

    with pytest.raises(ConfigError, match=f"{name}.*{package}"):
        program(name)
