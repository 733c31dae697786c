"""What was made of a batch, and how far it was read, as one transaction: both count, or neither.

    async with transaction(writer, batch, [place]):
        await writer.write(place, rows)

Whoever is killed in it goes on at the offsets of the last one that counts, and writes no row twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from rookery.client.transactions import TransactionalWriter
from rookery.consumer.group.commits import Commits
from rookery.consumer.output.batch import Batch
from rookery.errors import ConfigError
from rookery.model.partition import TopicPartition


@asynccontextmanager
async def transaction(
    writer: TransactionalWriter, batch: Batch, places: Iterable[TopicPartition]
) -> AsyncIterator[TransactionalWriter]:
    """Begin a transaction that ends with the block, and has the batch's checkpoint in it.

    Args:
        writer: which has been started.
        batch: whose rows are being processed; its stream must have a group.
        places: the partitions that will be written to.

    Raises:
        ConfigError: the stream has no group.
        ApiError, Unavailable: as the writer's, or partitions were taken from us since the batch
            came; nothing counts. The stream is past the batch: open it again to have it back.
    """
    commits = batch.committer
    if not isinstance(commits, Commits) or commits.group is None:
        raise ConfigError("group: a transaction stores offsets for the stream's group; name one")
    await writer.begin(places)
    try:
        yield writer
        offsets, member = commits.in_transaction(batch.checkpoint)
        await writer.send_offsets(commits.group, offsets, member)
        await writer.commit()
    except BaseException:
        await writer.abort()
        raise
