"""Packed environments of a user: each is made once, and unused ones are removed."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rookery.errors import ConfigError
from rookery.spark.environment.archivecache import ArchiveCache, cache_folder
from rookery.spark.environment.pack import STAGE_PREFIX
from rookery.testing.wait import wait_until

_HOLDER = """
import sys
from pathlib import Path
from rookery.spark.environment.archivecache import ArchiveCache

folder, fingerprint = Path(sys.argv[1]), sys.argv[2]
ArchiveCache(folder, print).get(fingerprint, lambda target: target.write_text(fingerprint))
print("held", flush=True)
sys.stdin.read()
"""


def _writer(text: str = "packed") -> Callable[[Path], object]:
    return lambda target: target.write_text(text)


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.tar.gz")}


def _use_elsewhere(folder: Path, fingerprint: str) -> None:
    """Get an archive in a process that ends at once."""
    done = subprocess.run(
        [sys.executable, "-c", _HOLDER, str(folder), fingerprint], input="", text=True, check=True
    )
    assert done.returncode == 0


def test_an_archive_is_written_once(tmp_path: Path) -> None:
    told: list[str] = []
    cache = ArchiveCache(tmp_path, told.append)
    first = cache.get("a", _writer("first"))

    assert cache.get("a", _writer("second")) == first
    assert first.read_text() == "first"
    assert first.name == "a.tar.gz"
    assert cache.get("b", _writer("other")) != first
    assert told == []


def test_failed_archive_is_not_cached(tmp_path: Path) -> None:
    def fail(target: Path) -> None:
        raise ConfigError("no such package")

    cache = ArchiveCache(tmp_path, print)
    with pytest.raises(ConfigError, match="no such package"):
        cache.get("a", fail)
    assert cache.get("a", _writer("whole")).read_text() == "whole"


def test_least_recently_used_archives_are_removed(tmp_path: Path) -> None:
    for number, fingerprint in enumerate(("a", "b", "c")):
        _use_elsewhere(tmp_path, fingerprint)
        os.utime(tmp_path / f"{fingerprint}.tar.gz", ns=(number, number))
    _use_elsewhere(tmp_path, "a")  # it is the newest now

    ArchiveCache(tmp_path, print, kept=2).get("d", _writer())

    assert _names(tmp_path) == {"a.tar.gz", "c.tar.gz", "d.tar.gz"}


def test_archive_in_use_is_kept(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path), "used"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        cache = ArchiveCache(tmp_path, print, kept=0)
        cache.get("mine", _writer())
        assert _names(tmp_path) == {"used.tar.gz", "mine.tar.gz"}
        holder.communicate("")

    cache.get("mine", _writer())
    assert _names(tmp_path) == {"mine.tar.gz"}


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    left = tmp_path / f"{STAGE_PREFIX}x" / "environment"
    left.mkdir(parents=True)

    ArchiveCache(tmp_path, print).get("a", _writer())

    assert not left.parent.exists()


def _get_in_turn(folder: Path, begun: Path, may_end: Path) -> None:
    """Write an archive that takes as long as the test wants."""

    def write(target: Path) -> None:
        begun.touch()
        wait_until(may_end.exists)
        assert not target.exists()
        target.write_text("first")

    ArchiveCache(folder, print).get("a", write)


def test_one_of_two_processes_packs_and_the_other_waits(tmp_path: Path) -> None:
    begun, may_end = tmp_path / "begun", tmp_path / "may-end"
    context = multiprocessing.get_context("spawn")
    first = context.Process(target=_get_in_turn, args=(tmp_path, begun, may_end))
    first.start()
    wait_until(begun.exists)
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        may_end.touch()

    archive = ArchiveCache(tmp_path, tell).get("a", _writer("second"))
    first.join()

    assert first.exitcode == 0
    assert archive.read_text() == "first"
    assert told == ["another process packs an environment: waiting for it"]


def test_unwritable_cache_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot be kept there.*XDG_CACHE_HOME.*--archive"):
        ArchiveCache(tmp_path / "file" / "cache", print).get("a", _writer())


def test_archives_are_stored_in_the_cache_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_folder({}) == Path("/home/me/.cache/rookery/environments")
    assert cache_folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/rookery/environments")
