"""What was made of a batch, and how far it was read, as one transaction: both count, or neither.

async with transaction(writer, batch, [place]):
await writer.write(place, rows)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from rookery.client.transactions import TransactionalWriter
from rookery.consumer.batch import Batch
from rookery.consumer.commits import Commits
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
        ApiError, Unavailable: as the writer's; nothing counts.
    """
    commits = batch.committer
    if not isinstance(commits, Commits) or commits.group is None:
        raise ConfigError("group: a transaction stores offsets for the stream's group; name one")
    await writer.begin(places)
    try:
        yield writer
        member = None if commits.member is None else commits.member.identity
        await writer.send_offsets(commits.group, batch.checkpoint.commits(), member)
        await writer.commit()
    except BaseException:
        await writer.abort()
        raise
