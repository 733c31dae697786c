"""The order of system calls, from a trace: write, sync, then answer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rookery.formats.keys import journal_name

ROOT = Path(__file__).parents[2]
STRACE = shutil.which("strace")

LINE = re.compile(r"(\d+) +(?:<\.\.\. \w+ resumed>)?(.*)")
WRITE = re.compile(r"pwritev2?\(\d+<(.*?)>, .*\], \d+, (\d+)(?:, 0)?\) += (\d+)$")
SYNC = re.compile(r"(fdatasync|fsync)\(\d+<(.*?)>\) += 0$")
ANSWER = re.compile(r'write\(1<.*?>, "(\d+) (\d+) (\d+) \d+ \d+\\n"')


@dataclass
class Disk:
    """What a crash of the machine would leave at this moment of the trace."""

    folder: Path
    written: dict[str, int] = field(default_factory=dict)
    synced: dict[str, int] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    answers: int = 0

    def done(self, call: str) -> None:
        """Follow a call that has returned."""
        if write := WRITE.match(call):
            self.written[write[1]] = int(write[2]) + int(write[3])
        elif sync := SYNC.match(call):
            if sync[2] == str(self.folder):
                self.named.update(self.written)
            elif sync[2] in self.written:
                self.synced[sync[2]] = self.written[sync[2]]

    def begun(self, call: str) -> None:
        """Check, when an answer is about to be given, that what it tells is on the disk."""
        if answer := ANSWER.match(call):
            object_id, position, size = map(int, answer.groups())
            path = str(self.folder / journal_name(object_id))
            assert self.synced.get(path, 0) >= position + size, call
            assert path in self.named, call
            self.answers += 1


def trace(folder: Path, output: Path, appends: int) -> list[str]:
    """Run the appending process under strace and return the trace's lines."""
    command = [
        str(STRACE),
        *("-f", "-y", "-s", "80", "-o", str(output)),
        *("-e", "trace=pwritev,pwritev2,fdatasync,fsync,write"),
        *(sys.executable, "-m", "tests.log.crashing", str(folder), str(appends)),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    if b"ptrace" in done.stderr:
        pytest.skip(f"cannot trace a process here: {done.stderr.decode()[-200:]}")
    assert done.returncode == 0, done.stderr.decode()
    return output.read_text().splitlines()


@pytest.mark.skipif(STRACE is None, reason="needs strace")
def test_answer_follows_the_sync(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    disk = Disk(folder)
    unfinished: dict[str, str] = {}
    for line in trace(folder, tmp_path / "trace", 25):
        match = LINE.match(line)
        if match is None:
            continue
        thread, text = match.groups()
        is_new = thread not in unfinished
        call = unfinished.pop(thread, "") + text
        if is_new:
            disk.begun(call)
        if call.endswith(" <unfinished ...>"):
            unfinished[thread] = call.removesuffix(" <unfinished ...>")
        else:
            disk.done(call)
    assert disk.answers == 8 * 25
    assert len(disk.written) > 3
