"""A process that appends, forever or a given number of times, and prints what is durable."""

from __future__ import annotations

import asyncio
import os
import sys
from itertools import count
from pathlib import Path

from rookery.log.settings import JournalSettings
from rookery.log.write.journal import Journal


def body(writer: int, number: int) -> bytes:
    """Bytes that tell whose they are."""
    return (b"%d:%d;" % (writer, number)) * (number * 37 % 900 + 1)


async def write(journal: Journal, writer: int, limit: int | None) -> None:
    """Append; each line has the place of a batch."""
    for number in count() if limit is None else range(limit):
        data = body(writer, number)
        place = await journal.append([data[:7], data[7:]])
        line = f"{place.object_id} {place.position} {place.size} {writer} {number}\n"
        # A short line goes to a pipe whole or not at all, and is out of the process at once.
        os.write(1, line.encode())


async def main(folder: Path, limit: int | None = None) -> None:
    """Run several writers on small files."""
    journal = Journal(folder, 1, "disk", JournalSettings(file_bytes=64 * 1024))
    await asyncio.gather(*(write(journal, writer, limit) for writer in range(8)))
    await journal.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *map(int, sys.argv[2:])))
