"""A process that writes one batch to a sink, and kills itself at a given step.

python -m tests.direct.sinkchild <store> <step> <batch id>
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from rookery.cluster.events.sinkevents import SinkCommitted, SinkPartStaged
from rookery.cluster.state.outcome import Outcome
from rookery.cluster.state.sinks import SinkBatch
from rookery.direct.commit import commit
from rookery.direct.log import DirectLog
from rookery.direct.place import ClusterAddress
from rookery.wire.message import Message
from tests.direct.sinking import rows, stage

STEPS = ("upload", "uploaded", "staged", "committing", "committed", "told")
ROWS = 6000


def die() -> None:
    """End at once, as if the power had gone."""
    os.kill(os.getpid(), signal.SIGKILL)


def arm(log: DirectLog, step: str) -> None:
    """Die at a step: before or after the first upload, event, or the commit."""
    create, propose = log.store.create, log.propose
    seen: list[str] = []

    async def creating(key: str, parts: Sequence[Any]) -> None:
        if step == "upload":
            die()
        await create(key, parts)
        seen.append("object")
        if step == "uploaded" or (step == "told" and "commit" in seen):
            die()

    async def proposing(events: Sequence[Message], payload: Sequence[Any] = ()) -> list[Outcome]:
        is_commit = isinstance(events[0], SinkCommitted)
        if is_commit and step == "committing":
            die()
        outcomes = await propose(events, payload)
        if isinstance(events[0], SinkPartStaged) and step == "staged":
            die()
        if is_commit:
            seen.append("commit")
            if step == "committed":
                die()  # the event is in the log, and the answer is lost
        return outcomes

    log.store.create = creating  # type: ignore[method-assign]
    log.propose = proposing  # type: ignore[method-assign]


async def main(store: str, step: str, batch_id: int) -> bool:
    """Write a batch of several objects; return whether it was there already."""
    batch = SinkBatch("sink", "query", batch_id)
    async with DirectLog.open(ClusterAddress(store=store)) as log:
        arm(log, step)
        sent = [rows(1000, batch_id * ROWS + start) for start in range(0, ROWS, 1000)]
        objects = await stage(log, *sent, batch=batch, object_bytes=64 * 1024)
        done = await commit(log, batch, [staged.object_id for staged in objects])
        return done.is_repeated


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
