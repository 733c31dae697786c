"""Reading payloads of entries: few reads of the log, and a clear error if an entry is gone."""

from __future__ import annotations

import pytest

from rookery.cluster.entry import EntryAuthor, write_entry
from rookery.cluster.open import open_log
from rookery.cluster.port import ClusterLog, LogEntry
from rookery.errors import Corrupt
from rookery.log.read.files import MissingObject
from rookery.log.read.objects import EntryReader


async def no_objects(object_id: int, position: int, size: int) -> bytes:
    return b"%d %d %d" % (object_id, position, size)


async def a_log(count: int) -> ClusterLog:
    log = open_log("memory:")
    for number in range(1, count + 1):
        await log.append(write_entry(EntryAuthor(0, 0, 0, 0, 0), [], [b"payload %d" % number]))
    return log


async def test_payloads_and_objects_are_read_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    log = await a_log(100)
    reads = []
    read = log.read

    async def counted(after: int, max_bytes: int) -> list[LogEntry]:
        reads.append(after)
        return list(await read(after, max_bytes))

    monkeypatch.setattr(log, "read", counted)
    reader = EntryReader(log, no_objects)
    for number in range(1, 101):
        assert await reader.read(-number, 0, 100) == b"payload %d" % number
    assert reads == [0]
    assert await reader.read(-7, 2, 3) == b"ylo"
    assert await reader.read(7, 2, 3) == b"7 2 3"


async def test_trimmed_entry_is_named() -> None:
    log = await a_log(10)
    await log.trim(6)
    reader = EntryReader(log, no_objects)
    assert await reader.read(-6, 0, 100) == b"payload 6"
    with pytest.raises(MissingObject, match="entry 3 was trimmed") as trimmed:
        await reader.read(-3, 0, 1)
    assert trimmed.value.object_id == -3
    with pytest.raises(Corrupt, match="entry 11 "):
        await reader.read(-11, 0, 1)
