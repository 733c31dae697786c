"""`rookery inspect`: shows the contents of a Kafka broker's data directory, and its damage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.fields import positional, switch

if TYPE_CHECKING:
    from rookery.formats.logfile.groups import LoggedGroups, LoggedTransactions
    from rookery.logdir.damage import Damage
    from rookery.logdir.directory import LogDirectory
    from rookery.logdir.inspection import PartitionInspection

_LAST_DATE_MS: Final = 253_402_300_799_999
_WIDEST: Final = 1000


@dataclass(frozen=True, kw_only=True)
class InspectDirectory(CommandArguments):
    """The directories to inspect, and how thoroughly."""

    directory: tuple[str, ...] = positional(
        "DIR",
        "a directory in Kafka's log.dirs; name all directories of the broker",
        nargs="+",
    )
    quick: bool = switch("--quick", help="check only the ends of the logs; read no batches")
    internal: bool = switch("--internal", help="include Kafka's internal topics")
    quiet: bool = switch("--quiet", help="do not show progress")


def run(args: InspectDirectory) -> int:
    """Inspect the directories; return 1 if anything is damaged."""
    from rookery.cli.output.figures import LiveMeter
    from rookery.logdir.directory import LogDirectory
    from rookery.logdir.inspection import inspect
    from rookery.logdir.internal import read_groups, read_transactions
    from rookery.model.topicname import INTERNAL_TOPICS

    directory = LogDirectory.open([Path(name) for name in args.directory])
    with LiveMeter("read", shown=not args.quiet) as meter:
        views = list(inspect(directory, is_quick=args.quick, progress=meter.add))
    groups, transactions = read_groups(directory), read_transactions(directory)
    damage = directory.damage
    if not args.internal:
        views = [view for view in views if view.name.topic not in INTERNAL_TOPICS]
    if args.json:
        print_json(_as_json(directory, views, groups, transactions))
    else:
        _print(directory, views, groups, transactions)
    return 1 if any(not fault.is_torn for fault in damage) else 0


def _as_json(
    directory: LogDirectory,
    views: list[PartitionInspection],
    groups: LoggedGroups,
    transactions: LoggedTransactions,
) -> dict[str, object]:
    """Return all of it for scripts."""
    image, meta = directory.image, directory.meta
    return {
        "directories": [str(path) for path in directory.paths],
        "cluster_id": meta.cluster_id if meta else None,
        "node_id": meta.node_id if meta else None,
        "clean_shutdown": directory.is_clean,
        "features": image.features,
        "metadata_offset": image.next_offset,
        "metadata_records_skipped": [
            {"type": type_, "version": version, "count": count}
            for (type_, version), count in image.skipped.items()
        ],
        "brokers": sorted(image.brokers),
        "next_producer_id": image.next_producer_id,
        "topics": _topic_rows(directory, views),
        "groups": _group_rows(groups),
        "transactions": {
            name: {
                "producer_id": value.producer_id,
                "producer_epoch": value.producer_epoch,
                "state": value.transaction_status,
            }
            for name, value in sorted(transactions.by_id.items())
        },
        "leftovers": [str(path) for path in sorted(directory.leftovers)],
        "damage": [_damage_row(damage) for damage in directory.damage],
        "damaged_records": groups.damaged + transactions.damaged,
    }


def _topic_rows(
    directory: LogDirectory, views: list[PartitionInspection]
) -> list[dict[str, object]]:
    topics: dict[str, list[PartitionInspection]] = {}
    for view in views:
        topics.setdefault(view.name.topic, []).append(view)
    return [
        {
            "name": name,
            "id": _id_text(directory.topic_id(name)),
            "configs": directory.image.topic_configs(name),
            "partitions": [_partition_row(view) for view in views],
        }
        for name, views in topics.items()
    ]


def _partition_row(view: PartitionInspection) -> dict[str, object]:
    return {
        "partition": view.name.partition,
        "log_start": view.log_start,
        "high_watermark": view.high_watermark,
        "last_stable_offset": view.last_stable,
        "log_end": view.log_end,
        "bytes": view.size_bytes,
        "segments": view.segments,
        "batches": view.batches,
        "records": view.records,
        "first_timestamp": view.first_timestamp,
        "last_timestamp": view.last_timestamp,
        "producers": [producer._asdict() for producer in view.producers],
        "open_transactions": view.open_transactions,
        "aborted_transactions": view.aborted_transactions,
        "damage": view.damage,
    }


def _group_rows(groups: LoggedGroups) -> list[dict[str, object]]:
    return [
        {
            "name": name,
            "offsets": [
                {
                    "topic": place.topic,
                    "partition": place.partition,
                    "offset": committed.offset,
                    "leader_epoch": committed.leader_epoch,
                    "metadata": committed.metadata,
                }
                for place, committed in sorted(group.offsets.items())
            ],
        }
        for name, group in sorted(groups.by_name.items())
    ]


def _damage_row(damage: Damage) -> dict[str, object]:
    return {
        "file": str(damage.path),
        "position": damage.position,
        "offset": damage.offset,
        "next_offset": damage.end_offset,
        "what": damage.reason,
        "torn": damage.is_torn,
    }


def _print(
    directory: LogDirectory,
    views: list[PartitionInspection],
    groups: LoggedGroups,
    transactions: LoggedTransactions,
) -> None:
    from rich.console import Console

    from rookery.cli.output.figures import size_text
    from rookery.cli.output.tables import make_table, number_text, open_console

    console = open_console()
    for line in _head(directory):
        print(line)
    right = ("start", "end", "records", "size", "segments", "producers")
    table = make_table(("partition", *right, "first record", "last record"), right=right)
    for view in views:
        table.add_row(
            view.name.text,
            f"{view.log_start:,}",
            f"{view.high_watermark:,}",
            number_text(view.records, "?"),
            size_text(view.size_bytes),
            f"{view.segments:,}",
            f"{len(view.producers):,}",
            _time_text(view.first_timestamp),
            _time_text(view.last_timestamp),
        )
    # A row that is cut, or broken over several lines, can be neither read nor grepped.
    needed = Console(width=_WIDEST).measure(table).maximum
    Console(width=max(console.width, needed)).print(table, crop=False)
    for view in views:
        if view.last_stable < view.high_watermark:
            print(f"{view.name.text}: transactions are open from {view.last_stable}")
    for line in _foot(directory, groups, transactions):
        print(line)


def _head(directory: LogDirectory) -> Iterator[str]:
    meta, image = directory.meta, directory.image
    if meta is not None:
        yield f"node {meta.node_id} of cluster {meta.cluster_id}"
    stop = "in order" if directory.is_clean else "not in order: what was written last may be torn"
    yield f"Kafka was shut down {stop}"
    if directory.metadata is not None:
        yield (
            f"metadata up to offset {image.next_offset - 1}: {len(image.topics.by_id):,} topics, "
            f"{len(image.brokers):,} brokers, metadata.version {image.metadata_version}"
        )
        others = sorted(set(image.brokers) - {meta.node_id if meta else -1})
        if others:
            yield (
                f"one broker of {len(others) + 1}: this disk alone; it ends where the last "
                "high watermark was noted"
            )
    for (type_, version), count in image.skipped.items():
        yield f"passed over {count:,} metadata records of type {type_} version {version}: unknown"


def _foot(
    directory: LogDirectory, groups: LoggedGroups, transactions: LoggedTransactions
) -> Iterator[str]:
    for name, group in sorted(groups.by_name.items()):
        offsets = ", ".join(
            f"{place.text} at {offset.offset}" for place, offset in sorted(group.offsets.items())
        )
        yield f"group {name}: {offsets or 'no offsets'}"
    if transactions.by_id:
        yield f"{len(transactions.by_id):,} transactional ids"
    for path, folder in sorted(directory.leftovers.items()):
        yield f"left over: {path.name} ({folder.stage or 'unknown to the cluster'})"
    for damage in directory.damage:
        yield f"{'torn' if damage.is_torn else 'damaged'}: {damage.text}"
    for text in groups.damaged + transactions.damaged:
        yield f"damaged: a record of Kafka's own topics: {text}"
    if not directory.damage:
        yield "nothing is damaged"


def _id_text(topic_id: bytes | None) -> str | None:
    from rookery.model.uuid import uuid_text

    return None if topic_id is None else uuid_text(topic_id)


def _time_text(timestamp: int) -> str:
    if not 0 <= timestamp <= _LAST_DATE_MS:
        return "" if timestamp < 0 else str(timestamp)
    return datetime.fromtimestamp(timestamp / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


COMMAND = Command(
    arguments=InspectDirectory,
    run=run,
    summary="Show the contents of a Kafka broker's data directory, and any damage.",
    example="rookery inspect /var/lib/kafka/data\n"
    "  rookery inspect /disk1/kafka /disk2/kafka --json",
)
