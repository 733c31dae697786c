"""The settings of batches that are written into Kafka's internal topics."""

from __future__ import annotations

from rookery.cluster.state.txns import TransactionOwner
from rookery.logdir.server.loadeddirectory import LoadedDirectory
from rookery.logdir.server.translate.job import Key
from rookery.logdir.server.translate.work import Work
from rookery.records.recordcodec import BatchSettings


def internal_settings(
    loaded: LoadedDirectory, work: Work, key: Key, writer: TransactionOwner | None = None
) -> BatchSettings | None:
    """Return the settings of a batch for an internal partition; None if it is not local."""
    partition = loaded.state.topics.partition(*key)
    if partition is None or key not in loaded.logs:
        return None
    base = work.next_offset(key, partition.next_offset)
    return BatchSettings(
        base_offset=base,
        partition_leader_epoch=partition.epoch_at(base),
        producer_id=writer.producer_id if writer else -1,
        producer_epoch=writer.epoch if writer else -1,
        is_transactional=writer is not None,
    )
