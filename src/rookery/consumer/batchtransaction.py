"""Writes the results of a batch and commits its offsets in one transaction, atomically.

    async with transaction(writer, batch, [place]):
        await writer.write(place, rows)

A process that is killed inside it resumes at the offsets of the last committed transaction, so no
row is written twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from rookery.client.produce.transactions import TransactionalWriter
from rookery.consumer.group.commits import Commits
from rookery.consumer.output.batch import Batch
from rookery.errors import ConfigError
from rookery.model.partition import TopicPartition


@asynccontextmanager
async def transaction(
    writer: TransactionalWriter, batch: Batch, places: Iterable[TopicPartition]
) -> AsyncIterator[TransactionalWriter]:
    """Begin a transaction that commits with the block and includes the batch's checkpoint.

    Args:
        writer: a started writer.
        batch: the batch that is being processed; its stream must have a group.
        places: the partitions to write to.

    Raises:
        ConfigError: the stream has no group.
        ApiError, Unavailable: the writer failed, or partitions were revoked since the batch came.
            Nothing is committed. The stream is past the batch: open it again to reread the batch.
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
