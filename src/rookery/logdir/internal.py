"""Reads groups and transactions of a broker's directory from Kafka's internal topics."""

from __future__ import annotations

from rookery.formats.logfile.groups import LoggedGroups, LoggedTransactions
from rookery.logdir.directory import LogDirectory
from rookery.model.topicname import OFFSETS_TOPIC, TRANSACTIONS_TOPIC


def read_groups(directory: LogDirectory) -> LoggedGroups:
    """Read every group with its committed offsets, from the partitions in this directory."""
    groups = LoggedGroups()
    for name, log in directory.partitions.items():
        if name.topic == OFFSETS_TOPIC:
            for batch in log.batches():
                groups.apply(batch.data, batch.header)
    return groups


def read_transactions(directory: LogDirectory) -> LoggedTransactions:
    """Read every transactional id with its state, from the partitions in this directory."""
    transactions = LoggedTransactions()
    for name, log in directory.partitions.items():
        if name.topic == TRANSACTIONS_TOPIC:
            for batch in log.batches():
                transactions.apply(batch.data, batch.header)
    return transactions
