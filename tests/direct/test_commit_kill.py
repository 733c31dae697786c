"""kill -9 of a writer at every step: it is run again, and every row exists once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rookery.direct.log import DirectLog
from rookery.direct.place import ClusterAddress
from tests.direct.sinkchild import ROWS, STEPS, main
from tests.direct.sinking import faults, make_cluster, make_topic, read_topic, values_of
from tests.direct.test_commit import stored, sweep


def kill(place: ClusterAddress, step: str, batch_id: int) -> None:
    """Run the writer in a process of its own, and see it die."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.direct.sinkchild", place.store, step, str(batch_id)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("step", STEPS)
async def test_killed_writer_is_repeated_and_every_row_is_stored_once(
    tmp_path: Path, step: str
) -> None:
    place = await make_cluster(tmp_path)
    async with DirectLog.open(place) as log:
        await make_topic(log)
    assert not await main(place.store, "none", 0)
    kill(place, step, 1)
    is_repeated = await main(place.store, "none", 1)
    assert is_repeated == (step in {"committed", "told"})
    expected = sorted(b"v%d" % number for number in range(2 * ROWS))
    async with DirectLog.open(place) as log:
        assert await values_of(log) == expected
        for part in await read_topic(log):
            numbers = [int((record.value or b"")[1:]) for record in part]
            assert numbers == sorted(numbers)
        # Nothing else is left once the caretaker has been there.
        await sweep(log)
        named = {
            object_id
            for part in log.state.topics.by_name["t"].partitions
            for object_id in part.objects
        }
        assert await stored(log) == named
        assert await values_of(log) == expected
    assert not await faults(place)
