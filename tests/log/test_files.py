"""Reading journal files: ranges, missing files, and shared descriptors."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path

import pytest

from rookery.errors import Conflict, Corrupt, Unavailable
from rookery.formats.journal import HEADER_BYTES, journal_header
from rookery.formats.keys import journal_name, object_id
from rookery.log.read.files import FoundJournal, JournalFiles, MissingJournal, OpenFiles
from rookery.log.settings import FilesSettings
from tests.log.test_journal import open_paths


def make(folder: Path, number: int, body: bytes) -> int:
    identity = object_id(1, number)
    (folder / journal_name(identity)).write_bytes(journal_header(identity) + body)
    return identity


async def test_range_of_a_journal_is_read(tmp_path: Path) -> None:
    identity = make(tmp_path, 0, b"0123456789")
    files = JournalFiles(tmp_path)
    assert await files.read(identity, HEADER_BYTES + 2, 3) == b"234"
    assert await files.read(identity, HEADER_BYTES + 8, 10) == b"89"
    assert await files.read(identity, HEADER_BYTES + 10, 10) == b""
    assert await files.read(identity, 5000, 10) == b""
    assert await files.read(identity, HEADER_BYTES, 0) == b""
    await files.close()


async def test_a_file_may_grow_after_it_was_opened(tmp_path: Path) -> None:
    identity = make(tmp_path, 0, b"0123")
    files = JournalFiles(tmp_path)
    assert await files.read(identity, HEADER_BYTES, 10) == b"0123"
    with (tmp_path / journal_name(identity)).open("ab") as file:
        file.write(b"4567")
    assert await files.read(identity, HEADER_BYTES, 10) == b"01234567"
    await files.close()


async def test_missing_file_is_named(tmp_path: Path) -> None:
    files = JournalFiles(tmp_path)
    identity = object_id(1, 0)
    with pytest.raises(MissingJournal, match=journal_name(identity)) as caught:
        await files.read(identity, 0, 10)
    assert caught.value.object_id == identity
    assert isinstance(caught.value, Conflict)
    await files.close()


async def test_stray_file_is_not_read(tmp_path: Path) -> None:
    identity = make(tmp_path, 0, b"0123")
    (tmp_path / journal_name(identity)).rename(tmp_path / journal_name(identity + 1))
    files = JournalFiles(tmp_path)
    with pytest.raises(Corrupt, match="copied or renamed"):
        await files.read(identity + 1, HEADER_BYTES, 4)
    assert not [path for path in open_paths() if path.is_relative_to(tmp_path)]
    await files.close()


async def test_failed_read_is_reported(tmp_path: Path) -> None:
    identity = object_id(1, 0)
    (tmp_path / journal_name(identity)).mkdir()
    files = JournalFiles(tmp_path)
    with pytest.raises(Unavailable, match=f"position 64 of {tmp_path}/journal-"):
        await files.read(identity, 64, 10)
    await files.close()


@pytest.mark.parametrize(("position", "size"), [(-1, 4), (0, -1)])
async def test_invalid_ranges_are_refused(tmp_path: Path, position: int, size: int) -> None:
    files = JournalFiles(tmp_path)
    with pytest.raises(ValueError, match="cannot read"):
        await files.read(object_id(1, 0), position, size)
    await files.close()


async def test_only_journals_are_found(tmp_path: Path) -> None:
    second, first = make(tmp_path, 9, b"xy"), make(tmp_path, 4, b"")
    (tmp_path / "cluster.sqlite").write_bytes(b"other")
    files = JournalFiles(tmp_path)
    assert await files.find() == [
        FoundJournal(first, HEADER_BYTES),
        FoundJournal(second, HEADER_BYTES + 2),
    ]
    await files.close()


async def test_dropped_file_is_closed(tmp_path: Path) -> None:
    identity = make(tmp_path, 0, b"0123")
    files = JournalFiles(tmp_path)
    await files.read(identity, HEADER_BYTES, 4)
    assert [path for path in open_paths() if path.is_relative_to(tmp_path)]
    files.forget(identity)
    assert not [path for path in open_paths() if path.is_relative_to(tmp_path)]
    await files.close()


async def test_many_reads_over_few_descriptors_return_the_right_bytes(tmp_path: Path) -> None:
    identities = [make(tmp_path, number, bytes([number]) * 5000) for number in range(12)]
    files = JournalFiles(tmp_path, FilesSettings(threads=8, max_open=2))
    dice = random.Random(4)

    async def read() -> None:
        for _ in range(40):
            number = dice.randrange(12)
            data = await files.read(identities[number], HEADER_BYTES, 5000)
            assert data == bytes([number]) * 5000
            if dice.random() < 0.1:
                files.forget(identities[number])

    await asyncio.gather(*(read() for _ in range(16)))
    assert len([path for path in open_paths() if path.is_relative_to(tmp_path)]) <= 2
    await files.close()
    assert not [path for path in open_paths() if path.is_relative_to(tmp_path)]


def test_descriptor_in_use_survives_its_eviction(tmp_path: Path) -> None:
    identities = [make(tmp_path, number, b"") for number in range(3)]
    held = OpenFiles(tmp_path, 1)
    with held.use(identities[0]) as fd:
        with held.use(identities[1]) as other:
            assert other != fd
        with held.use(identities[2]):
            pass
        assert len(held) == 1
        assert Path(f"/proc/self/fd/{fd}").readlink().name == journal_name(identities[0])
    names = {path.name for path in open_paths() if path.is_relative_to(tmp_path)}
    assert names == {journal_name(identities[2])}
    held.close()


def test_two_threads_can_open_one_file_concurrently(tmp_path: Path) -> None:
    identity = make(tmp_path, 0, b"")
    held = OpenFiles(tmp_path, 4)
    together = threading.Barrier(8)

    def use() -> None:
        together.wait(20)
        with held.use(identity):
            together.wait(20)

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([path for path in open_paths() if path.is_relative_to(tmp_path)]) == 1
    held.close()
    assert not [path for path in open_paths() if path.is_relative_to(tmp_path)]
