"""The journal of a process that is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from rookery.formats.journal import check_journal_header
from rookery.formats.keys import journal_name
from rookery.log.read.files import JournalFiles
from tests.log.crashing import body

ROOT = Path(__file__).parents[2]


def kill_after(folder: Path, lines: int) -> list[tuple[int, int, int, int, int]]:
    """Let the process run until it has printed a number of lines, kill it, and return all lines."""
    command = [sys.executable, "-m", "tests.log.crashing", str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=environment)
    with process:
        assert process.stdout
        said = [process.stdout.readline() for _ in range(lines)]
        process.kill()
        said += process.stdout.readlines()
    assert process.returncode == -9
    places = []
    for line in said:
        identity, position, size, writer, number = map(int, line.split())
        places.append((identity, position, size, writer, number))
    return places


@pytest.mark.parametrize("lines", [1, 17, 250, 1500])
async def test_acknowledged_appends_survive_kill_9(tmp_path: Path, lines: int) -> None:
    places = kill_after(tmp_path, lines)
    files = JournalFiles(tmp_path)
    for identity, position, size, writer, number in places:
        assert await files.read(identity, position, size) == body(writer, number)
    await files.close()
    assert len(places) >= lines
    for identity in {place[0] for place in places}:
        check_journal_header(identity, (tmp_path / journal_name(identity)).read_bytes())


async def test_no_two_appends_overlap(tmp_path: Path) -> None:
    places = sorted(kill_after(tmp_path, 400))
    for (identity, position, size, *_), (next_identity, start, *_) in pairwise(places):
        assert identity < next_identity or position + size <= start
