"""The journal: appends, syncs, groups, and failures of the disk."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rookery.errors import ConfigError, Conflict, Unavailable
from rookery.formats.journal import HEADER_BYTES, journal_header
from rookery.formats.keys import journal_name, object_id
from rookery.log.settings import Durability, JournalSettings
from rookery.log.write.journal import FlushPosition, Journal
from rookery.testing.clock import ManualClock
from rookery.testing.wait import wait_until
from tests.log.faulty import EIO, ENOSPC, FaultyDisk

FIRST = object_id(7, 0)
SECOND = object_id(7, 1)


@contextlib.asynccontextmanager
async def opened(
    folder: Path,
    disk: FaultyDisk | None = None,
    durability: Durability = "disk",
    settings: JournalSettings | None = None,
    clock: ManualClock | None = None,
) -> AsyncIterator[Journal]:
    journal = Journal(
        folder, 7, durability, settings, clock=clock or ManualClock(), disk=disk or FaultyDisk()
    )
    try:
        yield journal
    finally:
        if disk:
            disk.gate.set()
        await journal.close()


def bytes_at(folder: Path, written: FlushPosition) -> bytes:
    data = (folder / journal_name(written.object_id)).read_bytes()
    return data[written.position : written.position + written.size]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def gathered(
    journal: Journal, disk: FaultyDisk, *appends: list[bytes]
) -> list[FlushPosition]:
    """Append one thing alone, and the others while it is being written."""
    disk.gate.clear()
    disk.writing.clear()
    first = asyncio.ensure_future(journal.append(appends[0]))
    assert await asyncio.to_thread(disk.writing.wait, 20)
    rest = [asyncio.ensure_future(journal.append(parts)) for parts in appends[1:]]
    await asyncio.sleep(0)
    disk.gate.set()
    return await asyncio.gather(first, *rest)


async def test_appends_follow_the_header_contiguously(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        first = await journal.append([b"ab", bytearray(b"c"), memoryview(b"de")])
        second = await journal.append([b"fgh"])
    assert first == FlushPosition(FIRST, HEADER_BYTES, 5)
    assert second == FlushPosition(FIRST, HEADER_BYTES + 5, 3)
    content = (tmp_path / journal_name(FIRST)).read_bytes()
    assert content == journal_header(FIRST) + b"abcdefgh"


async def test_bytes_and_folder_are_synced_before_the_answer(tmp_path: Path) -> None:
    disk = FaultyDisk()
    name = journal_name(FIRST)
    async with opened(tmp_path, disk) as journal:
        await journal.append([b"one"])
        assert disk.calls == [
            f"create {name}",
            f"pwritev {name}",
            f"fdatasync {name}",
            f"open {tmp_path.name}",
            f"fsync {tmp_path.name}",
            f"close {tmp_path.name}",
        ]
        disk.calls.clear()
        await journal.append([b"two"])
        assert disk.calls == [f"pwritev {name}", f"fdatasync {name}"]
        assert journal.durable == (FIRST, HEADER_BYTES + 6)


async def test_waiting_appends_share_a_write_and_have_separate_positions(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with opened(tmp_path, disk) as journal:
        written = await gathered(journal, disk, [b"a"], [b"bb"], [b"c", b"cc"], [b"dddd"])
        assert disk.calls.count(f"pwritev {journal_name(FIRST)}") == 2
        assert disk.calls.count(f"fdatasync {journal_name(FIRST)}") == 2
        assert (journal.appends, journal.groups, journal.written_bytes) == (4, 2, 10)
    assert [bytes_at(tmp_path, each) for each in written] == [b"a", b"bb", b"ccc", b"dddd"]


async def test_a_group_is_bounded(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with opened(tmp_path, disk, settings=JournalSettings(group_bytes=4)) as journal:
        await gathered(journal, disk, [b"a"], [b"bb"], [b"cc"], [b"dd"], [b"eeeee"], [b"f"])
        assert journal.groups == 4


async def test_append_with_more_parts_than_one_system_call_takes_is_written(tmp_path: Path) -> None:
    disk = FaultyDisk()
    parts = [bytes([number % 251]) * (number % 3 + 1) for number in range(2500)]
    async with opened(tmp_path, disk) as journal:
        written = await journal.append(parts)
    assert disk.on(journal_name(FIRST)).count("pwritev") == 3
    assert bytes_at(tmp_path, written) == b"".join(parts)


async def test_full_file_is_followed_by_another(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with opened(tmp_path, disk, settings=JournalSettings(file_bytes=100)) as journal:
        written = [await journal.append([letter * 30]) for letter in (b"a", b"b", b"c", b"d")]
        large = await journal.append([b"e" * 500])
        last = await journal.append([b"f"])
    assert [each.object_id - FIRST for each in [*written, large, last]] == [0, 0, 1, 1, 2, 3]
    assert bytes_at(tmp_path, large) == b"e" * 500
    synced = ["pwritev", "fdatasync"]
    assert disk.on(journal_name(SECOND)) == ["create", *synced, *synced, "close"]
    assert disk.calls.count(f"fsync {tmp_path.name}") == 4


@pytest.mark.parametrize("call", ["pwritev", "fdatasync"])
async def test_failed_file_is_never_used_again(tmp_path: Path, call: str) -> None:
    disk = FaultyDisk()
    async with opened(tmp_path, disk) as journal:
        before = await journal.append([b"before"])
        disk.fail(call, EIO)
        after = await journal.append([b"after"])
        again = await journal.append([b"again"])
        assert journal.failure is None
        assert journal.abandoned == 1
    assert (after.object_id, again.object_id) == (SECOND, SECOND)
    done = disk.on(journal_name(FIRST))
    assert done[-1] == "close"
    assert done.count(call) == 2
    assert [bytes_at(tmp_path, each) for each in (before, after, again)] == [
        b"before",
        b"after",
        b"again",
    ]


async def test_whole_group_moves_to_the_new_file_after_a_failure(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with opened(tmp_path, disk) as journal:
        disk.fail("fdatasync", 0, EIO)
        written = await gathered(journal, disk, [b"a"], [b"bb"], [b"ccc"])
    assert [each.object_id for each in written] == [FIRST, SECOND, SECOND]
    assert [bytes_at(tmp_path, each) for each in written] == [b"a", b"bb", b"ccc"]


async def test_short_write_counts_as_failed(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with opened(tmp_path, disk) as journal:
        await journal.append([b"before"])
        disk.short = [3]
        after = await journal.append([b"after"])
    assert after == FlushPosition(SECOND, HEADER_BYTES, 5)
    assert bytes_at(tmp_path, after) == b"after"
    assert disk.on(journal_name(FIRST)).count("fdatasync") == 1


@pytest.mark.parametrize("call", ["pwritev", "fdatasync", "fsync"])
async def test_failed_new_file_is_removed(tmp_path: Path, call: str) -> None:
    disk = FaultyDisk()
    async with opened(tmp_path, disk) as journal:
        disk.fail(call, EIO, EIO)
        written = await journal.append([b"third time"])
    assert written.object_id == object_id(7, 2)
    assert names(tmp_path) == [journal_name(object_id(7, 2))]


async def test_failing_disk_is_reported_and_retried_later(tmp_path: Path) -> None:
    disk, clock = FaultyDisk(), ManualClock()
    async with opened(tmp_path, disk, clock=clock) as journal:
        disk.fail("fdatasync", EIO, EIO, EIO)
        with pytest.raises(Unavailable, match=r"journal-.*-00000002\.log.*check the disk"):
            await journal.append([b"lost"])
        calls = len(disk.calls)
        with pytest.raises(Unavailable, match="check the disk"):
            await journal.append([b"too soon"])
        assert len(disk.calls) == calls
        assert "Input/output error" in str(journal.failure)
        clock.advance(100)
        disk.fail("fdatasync", EIO)
        with pytest.raises(Unavailable):
            await journal.append([b"tried once"])
        clock.advance(100)
        written = await journal.append([b"well again"])
        assert not journal.failure
        assert journal.durable == (written.object_id, HEADER_BYTES + 10)
    assert names(tmp_path) == [journal_name(written.object_id)]


async def test_every_append_of_a_failed_group_fails(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with opened(tmp_path, disk) as journal:
        disk.fail("pwritev", 0, EIO, EIO, EIO)
        with pytest.raises(Unavailable):
            await gathered(journal, disk, [b"a"], [b"b"])
        assert journal.appends == 1


async def test_full_disk_is_reported_immediately(tmp_path: Path) -> None:
    disk, clock = FaultyDisk(), ManualClock()
    async with opened(tmp_path, disk, clock=clock) as journal:
        kept = await journal.append([b"kept"])
        disk.fail("pwritev", ENOSPC)
        with pytest.raises(Unavailable, match="No space left on device; free space"):
            await journal.append([b"x"])
        assert journal.abandoned == 1
        clock.advance(100)
        await journal.append([b"y"])
    assert bytes_at(tmp_path, kept) == b"kept"


async def test_full_disk_is_logged_when_it_fills_and_when_it_recovers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    disk, clock = FaultyDisk(), ManualClock()
    async with opened(tmp_path, disk, clock=clock) as journal:
        disk.fail("pwritev", *[ENOSPC] * 50)
        for _ in range(50):
            with pytest.raises(Unavailable):
                await journal.append([b"x"])
            clock.advance(100)
        await journal.append([b"y"])

    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(":")[0] for line in lines] == [
        "abandoning a journal file after a failed write",
        "the journal fails",
        "the journal works again after 50 failures",
    ]


async def test_real_full_disk_recovers_when_space_is_freed(small_disk: Path) -> None:
    folder = small_disk / "journal"
    clock = ManualClock()
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(512 * 1024))
    kept = []
    journal = Journal(folder, 7, "disk", clock=clock)

    async def fill() -> None:
        for number in range(100):
            written = await journal.append([bytes([number]) * 50_000])
            kept.append(written)

    with pytest.raises(Unavailable, match=f"{folder}/journal-.*No space left on device"):
        await fill()
    clock.advance(100)
    with pytest.raises(Unavailable, match="No space left on device"):
        await journal.append([bytes(50_000)])
    assert kept
    ballast.unlink()
    clock.advance(100)
    kept.append(await journal.append([bytes([len(kept)]) * 50_000]))
    await journal.close()
    for number, written in enumerate(kept):
        assert bytes_at(folder, written) == bytes([number]) * 50_000
    assert names(folder) == [journal_name(each) for each in sorted({k.object_id for k in kept})]


async def test_folder_is_created(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "journal"
    async with opened(folder) as journal:
        written = await journal.append([b"x"])
    assert bytes_at(folder, written) == b"x"


async def test_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match=f"{tmp_path}/file/journal"):
        Journal(tmp_path / "file" / "journal", 7)


@pytest.mark.parametrize("name", ["file_bytes", "group_bytes", "attempts"])
async def test_invalid_setting_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} of the journal is 0"):
        Journal(tmp_path, 7, settings=dataclasses.replace(JournalSettings(), **{name: 0}))


async def test_buffer_is_released_after_its_append(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        data = bytearray(b"from the network")
        await journal.append([memoryview(data)])
        # A bytearray that is still viewed refuses to change its size.
        await asyncio.to_thread(until_free, data)


async def test_incarnation_never_reuses_old_files(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.append([b"x"])
    with pytest.raises(Conflict, match=f"{journal_name(FIRST)} exists already"):
        Journal(tmp_path, 7)


async def test_existing_file_name_is_not_overwritten(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        (tmp_path / journal_name(FIRST)).write_bytes(b"someone else's")
        with pytest.raises(Conflict, match="exists already"):
            await journal.append([b"x"])
    assert (tmp_path / journal_name(FIRST)).read_bytes() == b"someone else's"


async def test_incarnations_share_a_folder(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        other = Journal(tmp_path, 8)
        first, second = await asyncio.gather(journal.append([b"one"]), other.append([b"two"]))
        await other.close()
    assert [first.object_id, second.object_id] == [FIRST, object_id(8, 0)]


async def test_current_file_cannot_be_deleted_until_it_is_rolled(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.append([b"x"])
        with pytest.raises(Conflict, match="is being written"):
            await journal.unlink(FIRST)
        await journal.roll()
        await journal.unlink(FIRST)
        await journal.unlink(FIRST)
        assert names(tmp_path) == []
        assert (await journal.append([b"y"])).object_id == SECOND


async def test_refused_deletion_is_reported(tmp_path: Path) -> None:
    (tmp_path / journal_name(object_id(1, 0))).mkdir()
    async with opened(tmp_path) as journal:
        with pytest.raises(Unavailable, match="cannot remove journal file"):
            await journal.unlink(object_id(1, 0))


async def test_roll_takes_effect_in_the_order_of_appends(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with opened(tmp_path, disk) as journal:
        disk.gate.clear()
        first = asyncio.ensure_future(journal.append([b"first"]))
        assert await asyncio.to_thread(disk.writing.wait, 20)
        second = asyncio.ensure_future(journal.append([b"second"]))
        await asyncio.sleep(0)
        rolled = asyncio.ensure_future(journal.roll())
        await asyncio.sleep(0)
        third = asyncio.ensure_future(journal.append([b"third"]))
        await asyncio.sleep(0)
        disk.gate.set()
        await asyncio.gather(first, second, rolled, third)
    assert [(await each).object_id for each in (first, second, third)] == [FIRST, FIRST, SECOND]


async def test_close_completes_pending_appends(tmp_path: Path) -> None:
    disk = FaultyDisk()
    journal = Journal(tmp_path, 7, disk=disk)
    disk.gate.clear()
    appends = [asyncio.ensure_future(journal.append([b"x"])) for _ in range(5)]
    await asyncio.sleep(0)
    assert journal.pending_bytes == 5
    closing = asyncio.ensure_future(journal.close())
    await asyncio.sleep(0)
    disk.gate.set()
    await closing
    assert len(await asyncio.gather(*appends)) == 5
    assert journal.pending_bytes == 0
    with pytest.raises(Unavailable, match="is closed"):
        await journal.append([b"late"])
    with pytest.raises(Unavailable, match="is closed"):
        await journal.roll()
    await journal.close()


async def test_cancelled_append_does_not_affect_others(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with opened(tmp_path, disk) as journal:
        disk.gate.clear()
        first = asyncio.ensure_future(journal.append([b"first"]))
        assert await asyncio.to_thread(disk.writing.wait, 20)
        second = asyncio.ensure_future(journal.append([b"second"]))
        third = asyncio.ensure_future(journal.append([b"third"]))
        await asyncio.sleep(0)
        second.cancel()
        disk.gate.set()
        written = await third
        assert (await first).size == 5
        assert second.cancelled()
        assert journal.pending_bytes == 0
    assert bytes_at(tmp_path, written) == b"third"


async def test_an_empty_append_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        with pytest.raises(ValueError, match="at least one byte"):
            await journal.append([b"", b""])


async def test_event_loop_runs_while_the_disk_works(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with opened(tmp_path, disk) as journal:
        disk.gate.clear()
        append = asyncio.ensure_future(journal.append([b"x"]))
        assert await asyncio.to_thread(disk.writing.wait, 20)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not append.done()
        disk.gate.set()
        await append


async def test_unexpected_failure_is_reported_and_the_thread_continues(tmp_path: Path) -> None:
    class Odd(FaultyDisk):
        is_odd = True

        def fdatasync(self, fd: int) -> None:
            if self.is_odd:
                raise RuntimeError("odd")
            super().fdatasync(fd)

    disk = Odd()
    async with opened(tmp_path, disk) as journal:
        with pytest.raises(Unavailable, match="odd"):
            await journal.append([b"x"])
        disk.is_odd = False
        written = await journal.append([b"y"])
    assert written.object_id == SECOND
    assert bytes_at(tmp_path, written) == b"y"


async def test_os_durability_syncs_only_full_files_and_at_the_end(tmp_path: Path) -> None:
    disk = FaultyDisk()
    settings = JournalSettings(file_bytes=100)
    async with opened(tmp_path, disk, "os", settings) as journal:
        await journal.append([b"a" * 40])
        assert [call.split()[0] for call in disk.calls] == ["create", "pwritev"]
        assert journal.durable is None
        await journal.append([b"b" * 40])
    assert disk.on(journal_name(FIRST)) == ["create", "pwritev", "fdatasync", "close"]
    assert disk.on(journal_name(SECOND)) == ["create", "pwritev", "fdatasync", "close"]
    assert disk.calls.count(f"fsync {tmp_path.name}") == 2
    assert journal.durable == (SECOND, HEADER_BYTES + 40)


async def test_os_durability_does_not_report_bytes_lost_by_a_failed_sync(tmp_path: Path) -> None:
    disk = FaultyDisk()
    settings = JournalSettings(file_bytes=100)
    disk.fail("fdatasync", 0, EIO)
    async with opened(tmp_path, disk, "os", settings) as journal:
        for _ in range(4):
            await journal.append([b"a" * 60])
    assert journal.durable == (FIRST, HEADER_BYTES + 60)
    assert not [path for path in open_paths() if path.is_relative_to(tmp_path)]


async def test_os_durability_still_abandons_a_failed_file(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with opened(tmp_path, disk, "os") as journal:
        kept = await journal.append([b"kept"])
        disk.fail("pwritev", EIO)
        moved = await journal.append([b"moved"])
    assert (kept.object_id, moved.object_id) == (FIRST, SECOND)
    assert disk.on(journal_name(FIRST))[-2:] == ["fdatasync", "close"]
    assert journal.durable == (SECOND, HEADER_BYTES + 5)


def until_free(data: bytearray) -> None:
    """Wait until no view of the bytes is left: the journal's thread may still use them."""

    def is_free() -> bool:
        try:
            data.clear()
        except BufferError:
            return False
        return True

    wait_until(is_free, "the bytes are still held", pause=0)


def open_paths() -> list[Path]:
    """List what this process has open."""
    paths = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the listing's own descriptor is gone by now
            paths.append(link.readlink())
    return paths
