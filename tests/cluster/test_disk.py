"""The SQLite log on a full or damaged disk."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from rookery.cluster.backends.sqlite import SqliteLog
from rookery.cluster.local.database import Database
from rookery.cluster.open import open_log
from rookery.cluster.port import Durability
from rookery.errors import Corrupt, Unavailable
from tests.cluster.processes import Opener, child
from tests.contracts.cluster_log import append_many


def test_full_disk_is_reported_and_survived(path: Path) -> None:
    with child("fill", f"sqlite://{path}") as process:
        out, _ = process.communicate()
    error, left, again = out.splitlines()
    assert str(path) in error
    assert "disk" in error
    assert left == "[]"
    assert again == "1"


def touched(path: Path) -> None:
    path.touch()


def made_wal(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()


def made_folder(path: Path) -> None:
    path.with_name(path.name + ".peers").mkdir()


def half_a_bell(path: Path) -> None:
    made_folder(path)
    # A socket's file without its socket: an address would be too long in some temporary folders.
    os.mknod(path.with_name(path.name + ".peers") / "0123.bell.new", stat.S_IFSOCK | 0o600)


@pytest.mark.parametrize("leave", [touched, made_wal, made_folder, half_a_bell])
def test_log_killed_while_opening_can_be_opened(path: Path, leave: Callable[[Path], None]) -> None:
    leave(path)

    async def use() -> int:
        log = open_log(f"sqlite://{path}")
        number = await log.append(b"x")
        await log.close()
        return number

    assert asyncio.run(use()) == 1
    assert asyncio.run(use()) == 2
    assert list(path.parent.glob("*.peers/*.bell*")) == []


@pytest.fixture
def not_a_log(path: Path) -> Path:
    path.write_bytes(b"not a database" * 1000)
    return path


async def test_file_that_is_not_a_database_is_refused(not_a_log: Path) -> None:
    with pytest.raises(Corrupt, match=r"cluster\.sqlite: file is not a database"):
        open_log(f"sqlite://{not_a_log}")


async def test_another_programs_database_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()
    with pytest.raises(Corrupt, match="no cluster log"):
        open_log(f"sqlite://{path}")


async def test_newer_format_is_refused_with_its_number(path: Path) -> None:
    log = open_log(f"sqlite://{path}")
    await log.close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(Corrupt, match="format 9, and this version of Rookery reads format 1"):
        open_log(f"sqlite://{path}")


def flip(path: Path, old: bytes, new: bytes) -> None:
    path.write_bytes(path.read_bytes().replace(old, new, 1))


async def test_flipped_byte_is_never_returned(path: Path) -> None:
    log = open_log(f"sqlite://{path}")
    await log.append(b"before")
    await log.append(b"needle" * 10)
    await log.close()
    flip(path, b"needleneedle", b"needlEneedle")
    log = open_log(f"sqlite://{path}")
    assert len(await log.read(0, 1)) == 1
    with pytest.raises(Corrupt, match="entry 2 fails its checksum"):
        await log.read(1)
    await log.close()


async def test_missing_entry_is_detected(path: Path) -> None:
    log = open_log(f"sqlite://{path}")
    await append_many(log, "a", 5)
    await log.close()
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM entry WHERE number = 3")
    connection.close()
    log = open_log(f"sqlite://{path}")
    with pytest.raises(Corrupt, match="entry 3 is missing"):
        await log.read(0)
    await log.close()


async def test_program_that_locks_the_file_is_reported(
    path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rookery.cluster.local.database._BUSY_SECONDS", 0.05)
    log = opened()
    intruder = sqlite3.connect(path, isolation_level=None)
    intruder.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="another program holds it"):
        await log.append(b"x")
    intruder.execute("ROLLBACK")
    intruder.close()
    assert await log.append(b"x") == 1


async def test_folder_that_cannot_be_created_is_reported(not_a_log: Path) -> None:
    with pytest.raises(Unavailable, match=r"cluster\.sqlite"):
        open_log(f"sqlite://{not_a_log}/log")


async def test_file_is_readable_by_its_owner_only(path: Path, opened: Opener) -> None:
    await opened().append(b"x")
    for file in path.parent.glob("cluster.sqlite*"):
        assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("durability", ["disk", "os"])
async def test_the_wal_stays_short_under_load(path: Path, durability: Durability) -> None:
    log = SqliteLog(path, durability)
    data = os.urandom(400_000)
    for _ in range(4):
        for _ in range(100):
            await log.append(data)
        if log._copying is not None:
            await log._copying
    # 160 MB went through it.
    assert path.with_name("cluster.sqlite-wal").stat().st_size < 100 << 20
    await log.close()


async def test_trimming_frees_space_in_the_file(path: Path, opened: Opener) -> None:
    log = opened()
    data = os.urandom(300_000)
    for _ in range(10):
        for _ in range(10):
            await log.append(data)
        await log.trim(await log.head())
    await log.close()
    # 30 MB went through it.
    assert os.stat(path).st_size < 10 << 20  # noqa: PTH116


@pytest.mark.parametrize(("durability", "level"), [("disk", 2), ("os", 1)])
def test_durability_sets_the_sync_mode(path: Path, durability: Durability, level: int) -> None:
    path.touch()
    database = Database(path, durability)
    assert database._connection.execute("PRAGMA synchronous").fetchone() == (level,)
    database.close()
