"""Readers that are killed at random points lose nothing and double nothing.

    python -m tests.consumer.killing --kills 100

On a real Kafka: a reader writes rows and checkpoints to a file, is killed (SIGKILL) and started
again, repeatedly. What it wrote must be the sorted dump of the log. With `--mode group` it
continues where its group has committed: rows between the last commit and the kill come twice, no
others.
With `--mode transaction` it copies rows to another topic, in transactions that have the group's
offsets in them: the copy must be the sorted dump, each row once.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from signal import SIGKILL
from typing import Final

import pyarrow as pa

from rookery.testing.kafka import KafkaServer
from rookery.testing.kafkalogs import Logs
from rookery.testing.process import LoggedProcess
from rookery.testing.wait import wait_until
from tests.consumer.hard.copier import BATCH_ROWS as COPIED_ROWS
from tests.consumer.hard.copier import STEPS
from tests.consumer.hard.offline import dump, ordered, plain
from tests.consumer.hard.reader import BATCH_ROWS, frames
from tests.consumer.hard.skew import Shape, fill

say: Final = partial(print, flush=True)
_LOOK: Final = 0.002
_WITHIN: Final = 180.0
_MODES: Final = ("checkpoint", "group", "transaction")


def main() -> int:
    """Run it; 0 if nothing was lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--mode", choices=_MODES, default="checkpoint")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    args = parser.parse_args()
    say(f"seed {args.seed}")
    with (
        KafkaServer() as kafka,
        Logs(kafka.bootstrap) as logs,
        tempfile.TemporaryDirectory(prefix="rookery-killing-") as folder,
    ):
        topic = logs.create("killed", args.partitions)
        fill(logs, topic, Shape(args.rows, args.partitions))
        say(f"{args.rows:,} rows are written")
        if args.mode == "transaction":
            twice = copying(logs, topic, Path(folder), args.kills, args.seed)
        else:
            group = "killed" if args.mode == "group" else None
            twice = ordeal(logs.bootstrap, topic, Path(folder), args.kills, args.seed, group)
    say(f"{args.kills} kills, {args.rows:,} rows, none lost, {twice:,} of them twice")
    return 0


def ordeal(
    bootstrap: str, topic: str, folder: Path, kills: int, seed: int, group: str | None = None
) -> int:
    """Kill readers and compare; return how many rows came twice."""
    path, log = folder / "rows", folder / "log"
    command = [sys.executable, "-m", "tests.consumer.hard.reader", bootstrap, topic, str(path)]
    if group is not None:
        command.append(group)
    expected = ordered(dump(bootstrap, [topic]))
    chance = random.Random(seed)
    about = expected.get_total_buffer_size()
    killed = 0
    for mark in sorted(chance.randrange(about) for _ in range(kills)):
        status = _kill_behind(LoggedProcess(command, log), path, mark)
        killed += status == -SIGKILL
        assert status in {0, -SIGKILL}, f"a reader ended with {status}:\n{log.read_text()[-3000:]}"
    say(f"{killed} of {kills} were killed before they had come to the end")
    end = LoggedProcess(command, log).ended(_WITHIN)
    assert end == 0, f"the last reader ended with {end}:\n{log.read_text()[-3000:]}"
    written = plain([batch for batch, _, _ in frames(path)])
    if group is None:
        assert written.equals(expected), "the output is not the log in order"
        return 0
    return _check_twice(written, expected, kills)


def copying(logs: Logs, topic: str, folder: Path, kills: int, seed: int) -> int:
    """Kill copiers and compare what they have copied; return how many rows occur twice."""
    sink = logs.create("copies", 1)
    expected = ordered(dump(logs.bootstrap, [topic]))
    chance = random.Random(seed)
    # So few that the last of them finds something to do, too.
    most = STEPS * expected.num_rows // (COPIED_ROWS * max(kills, 1)) + STEPS
    log, killed = folder / "log", 0
    for number in range(kills + 1):
        steps = folder / f"steps-{number}"
        command = [sys.executable, "-m", "tests.consumer.hard.copier"]
        command += [logs.bootstrap, topic, sink, f"group-{sink}", str(steps)]
        process = LoggedProcess(command, log)
        if number < kills:
            status: int | None = _kill_behind(process, steps, chance.randrange(1, most))
        else:
            status = process.ended(_WITHIN)
        killed += status == -SIGKILL
        assert status in {0, -SIGKILL}, f"a copier ended with {status}:\n{log.read_text()[-3000:]}"
    say(f"{killed} of {kills} were killed before they had come to the end")
    copies = dump(logs.bootstrap, [sink]).sort_by("offset")
    places = [b"%d:%d" % place for place in _places(expected)]
    assert copies.column("key").to_pylist() == places, "the copy is not the log in order, once"
    assert copies.column("value").to_pylist() == expected.column("value").to_pylist()
    return 0


def _kill_behind(process: LoggedProcess, path: Path, mark: int) -> int:
    """Kill a reader as soon as its file has a given length; return how it ended."""

    def is_due() -> bool:
        is_long = path.exists() and path.stat().st_size >= mark
        return is_long or process.ended() is not None

    wait_until(is_due, f"{mark} bytes of the reader", seconds=_WITHIN, pause=_LOOK)
    status = process.ended()  # it can have come to the end
    return process.kill() if status is None else status


def _check_twice(written: pa.Table, expected: pa.Table, kills: int) -> int:
    """Check that no row is missing, and that only whole tails between commit and kill repeat."""
    places: dict[tuple[int, int], int] = {}
    for place in _places(written):
        places[place] = places.get(place, 0) + 1
    assert places.keys() == set(_places(expected)), "rows are missing"
    twice = sum(places.values()) - len(places)
    assert twice <= kills * BATCH_ROWS, f"{twice} rows came twice"
    return twice


def _places(table: pa.Table) -> Sequence[tuple[int, int]]:
    columns = (table.column(name).to_pylist() for name in ("partition", "offset"))
    return list(zip(*columns, strict=True))


if __name__ == "__main__":
    sys.exit(main())
