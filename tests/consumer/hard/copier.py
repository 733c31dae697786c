"""A copier that is killed: `python -m tests.consumer.hard.copier BOOTSTRAP TOPIC SINK GROUP STEPS`.

Each batch goes to the sink in a transaction that has the group's offsets in it. After every step
it adds a byte to the file STEPS, so that the test that kills it knows where it is.
"""

from __future__ import annotations

import asyncio
import sys
from io import RawIOBase
from pathlib import Path
from typing import Final

import pyarrow as pa

from rookery.client.client import Client
from rookery.client.produce.transactions import TransactionalWriter
from rookery.consumer.api import read
from rookery.consumer.batchtransaction import transaction
from rookery.consumer.output.batch import Batch
from rookery.model.partition import TopicPartition

BATCH_ROWS: Final = 500
STEPS: Final = 3
"""How many there are for each batch."""


def main(bootstrap: str, topic: str, sink: str, group: str, steps: str) -> None:
    """Copy from where the group stands to the end."""
    with Path(steps).open("ab", buffering=0) as done:
        asyncio.run(_copy(bootstrap, topic, TopicPartition(sink, 0), group, done))


async def _copy(
    bootstrap: str, topic: str, place: TopicPartition, group: str, done: RawIOBase
) -> None:
    async with Client(bootstrap) as client:
        writer = TransactionalWriter(client, f"copy-{group}")
        await writer.start()
        async with read(
            bootstrap, topic, start="committed", group=group, batch_rows=BATCH_ROWS, memory=8 << 20
        ) as stream:
            async for batch in stream:
                async with transaction(writer, batch, [place]):
                    done.write(b"b")
                    await writer.write(place, _copied(batch))
                    done.write(b"w")
                done.write(b"c")


def _copied(batch: Batch) -> pa.Table:
    keys = [b"%d:%d" % (row["partition"], row["offset"]) for row in batch.to_pylist()]
    return pa.table({"key": pa.array(keys, pa.binary()), "value": batch["value"]})


if __name__ == "__main__":
    main(*sys.argv[1:])
