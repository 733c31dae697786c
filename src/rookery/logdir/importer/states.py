"""Imports state outside partitions: group offsets, transactional ids, open transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rookery.cluster.entry import divide, divide_offsets
from rookery.cluster.events.groupevents import OffsetCommitted, OffsetsPublished
from rookery.cluster.events.importevents import TransactionalIdImported
from rookery.cluster.events.logevents import ProducerIdsAllotted
from rookery.cluster.events.securityevents import AclsCreated, ScramCredentialsChanged
from rookery.cluster.events.tokenevents import DelegationTokenCreated
from rookery.cluster.events.txnevents import MarkersWritten, TransactionPlace
from rookery.cluster.state import producers
from rookery.cluster.state.rules.securityrules import SECURITY
from rookery.cluster.state.txns import LAST_EPOCH
from rookery.formats.kraft.image import MetadataImage
from rookery.formats.logfile.groups import LoggedGroup, LoggedGroups, LoggedTransactions
from rookery.logdir.accesscontrol import missing_events
from rookery.logdir.importer.report import ImportReport
from rookery.logdir.importer.target import ImportTarget, happen
from rookery.model.partition import TopicPartition
from rookery.wire.coordinator.transactions import TransactionLogValue

_MOST_IDS: Final = 1 << 30
_PREPARE_COMMIT, _COMPLETE_COMMIT = 2, 4


def committed_producers(transactions: LoggedTransactions) -> frozenset[int]:
    """Return the producer ids whose last transaction is decided as a commit."""
    return frozenset(
        value.producer_id
        for value in transactions.by_id.values()
        if value.transaction_status in {_PREPARE_COMMIT, _COMPLETE_COMMIT}
    )


async def end_open(target: ImportTarget, committed: frozenset[int], report: ImportReport) -> None:
    """End the transactions that were open when Kafka stopped: no other process can end them.

    This follows a restart of Kafka: prepared commits are committed, all others are aborted.
    """
    state = await target.barrier()
    for topic in state.topics:
        for partition in topic.partitions:
            for producer_id in list(partition.ongoing):
                if producer_id in state.transactions.by_producer:
                    continue  # it has an active producer in this cluster
                window = partition.producers.get(producer_id)
                epoch = producers.describe(window).epoch if window else 0
                place = TransactionPlace(topic_id=topic.id, partition=partition.index)
                event = MarkersWritten(
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    is_commit=producer_id in committed,
                    places=[place],
                )
                name = TopicPartition(topic.name, partition.index)
                await happen(target, [event], f"the end of a transaction in {name.text}")
                report.ended.setdefault(name, []).append(producer_id)


async def import_producer_ids(target: ImportTarget, next_producer_id: int) -> None:
    """Ensure that no producer id that Kafka has assigned is assigned again."""
    missing = next_producer_id - target.state.next_producer_id
    while missing > 0:
        count = min(missing, _MOST_IDS)
        await happen(target, [ProducerIdsAllotted(count=count)], "producer ids")
        missing -= count


async def import_transactional_ids(
    target: ImportTarget, transactions: LoggedTransactions, report: ImportReport
) -> None:
    """Import transactional ids, so that the next producer fences earlier ones."""
    for name, value in sorted(transactions.by_id.items()):
        if name in target.state.transactions.by_id or not _can_be_kept(target, value):
            continue
        event = TransactionalIdImported(
            transactional_id=name,
            producer_id=value.producer_id,
            producer_epoch=value.producer_epoch,
            timeout_ms=value.transaction_timeout_ms,
        )
        await happen(target, [event], f"transactional id {name!r}")
        report.transactional_ids += 1


def _can_be_kept(target: ImportTarget, value: TransactionLogValue) -> bool:
    return (
        value.producer_id >= 0
        and 0 <= value.producer_epoch <= LAST_EPOCH
        and value.transaction_timeout_ms > 0
        and value.producer_id not in target.state.transactions.by_producer
    )


async def import_groups(
    target: ImportTarget, groups: LoggedGroups, ids: dict[str, bytes], report: ImportReport
) -> None:
    """Import the committed offsets of groups; offsets committed in this cluster are kept.

    Args:
        target: the cluster to import into.
        groups: the groups and their offsets.
        ids: the ids of the imported topics, by name.
        report: receives the results.
    """
    for name, group in sorted(groups.by_name.items()):
        known = target.state.groups.by_id.get(name)
        if known is not None and known.kind:
            report.left_out.append(f"group {name!r}: it has members in this cluster")
            continue
        offsets = [
            offset
            for offset in _offsets(group, ids)
            if known is None or known.offset(offset.topic_id, offset.partition) is None
        ]
        for part in divide_offsets(offsets):
            event = OffsetsPublished(group_id=name, offsets=part)
            await happen(target, [event], f"group {name!r}")
        report.groups += bool(offsets)
        report.offsets += len(offsets)


def _offsets(group: LoggedGroup, ids: dict[str, bytes]) -> Iterator[OffsetCommitted]:
    for place, committed in sorted(group.offsets.items()):
        if place.topic in ids:
            yield OffsetCommitted(
                topic_id=ids[place.topic],
                partition=place.partition,
                offset=committed.offset,
                leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
            )


async def import_security(target: ImportTarget, image: MetadataImage, report: ImportReport) -> None:
    """Add the access rules, users, quotas and tokens that the cluster does not have yet."""
    events = list(missing_events(image, target.state.security))
    if events and target.state.feature_level < SECURITY:
        report.left_out.append(
            f"access rules, users, quotas and tokens: the cluster has feature level "
            f"{target.state.feature_level}; raise it to {SECURITY} and import again"
        )
        return
    for part in divide(events):
        await happen(target, part, "access rules, users and quotas")
    for event in events:
        match event:
            case AclsCreated():
                report.rules += len(event.rules)
            case ScramCredentialsChanged():
                report.users += 1
            case DelegationTokenCreated():
                report.tokens += 1
            case _:
                report.quotas += 1
    if image.tokens:
        report.left_out.append(
            f"the key of {len(image.tokens)} delegation tokens: write Kafka's "
            "delegation.token.secret.key to a file, and name it in the brokers' setting "
            "delegation_tokens.secret_file"
        )
