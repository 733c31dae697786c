# ruff: noqa: N999 (a module is named as its command is)
"""`rookery import`: imports a Kafka broker's data directory with every offset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.fields import option, part, positional, repeated, switch
from rookery.cli.options.storage import STORAGE_HELP, STORAGE_TITLE, LogAddress, place_of
from rookery.cli.options.values import count
from rookery.errors import ConfigError

if TYPE_CHECKING:
    from rookery.broker.settings import BrokerSettings
    from rookery.logdir.directory import LogDirectory
    from rookery.logdir.importer.report import ImportReport


@dataclass(frozen=True, kw_only=True)
class ImportDirectory(CommandArguments):
    """The data to import, and its destination."""

    directory: tuple[str, ...] = positional(
        "DIR",
        "a directory in Kafka's log.dirs; name all directories of the broker",
        nargs="+",
    )
    to: str | None = option(
        "--to",
        metavar="PLACE",
        help="the store (s3://bucket/prefix, file:///srv/rookery) or the folder of brokers on "
        "this host; creates the cluster if there is none",
    )
    topic: tuple[str, ...] = repeated(
        "--topic", metavar="NAME", help="import only this topic; may be repeated"
    )
    properties: str | None = option(
        "--properties",
        metavar="FILE",
        help="the broker's server.properties, from which topics inherit settings such as their "
        "retention",
    )
    skip_damaged: bool = switch(
        "--skip-damaged", help="skip damaged batches, which leaves gaps in the offsets"
    )
    segment_bytes: int = option(
        "--segment-bytes",
        type=count,
        default=64 * 1024 * 1024,
        metavar="BYTES",
        help="the size of segments in the store (default: 64Mi)",
    )
    no_verify: bool = switch(
        "--no-verify", help="do not read the imported records back to verify them"
    )
    quiet: bool = switch("--quiet", help="do not show progress")
    log: LogAddress = part(LogAddress, STORAGE_TITLE, STORAGE_HELP)

    def load_settings(self) -> BrokerSettings:
        """Return where the log is; `--to` is a store if it is a URL, else a folder."""
        settings = self.log.load_settings()
        if not self.to:
            return settings
        if ":" in self.to:
            return replace(settings, store=self.to)
        return replace(settings, data=self.to, store="", cluster="")


def run(args: ImportDirectory) -> int:
    """Import; an interrupted run resumes where it was."""
    from rookery.logdir.directory import LogDirectory
    from rookery.net.loop import run_loop

    settings = args.load_settings()
    directory = LogDirectory.open([Path(name) for name in args.directory])
    _check_topics(directory, args.topic)
    report = run_loop(_import(args, settings, directory, _properties(args.properties)))
    if args.json:
        print_json({**report.as_json(), "verified": not args.no_verify})
    else:
        for line in _as_text(report, is_verified=not args.no_verify):
            print(line)
    return 0


def _check_topics(directory: LogDirectory, names: Sequence[str]) -> None:
    there = {name.topic for name in directory.partitions}
    for name in names:
        if name not in there:
            raise ConfigError(f"--topic {name!r}: the directory has no such topic")


def _properties(name: str | None) -> dict[str, str]:
    if name is None:
        return {}
    from rookery.formats.logfile.properties import parse_properties
    from rookery.logdir.files import read_text

    text = read_text(Path(name))
    if text is None:
        raise ConfigError(f"--properties {name}: there is no such file")
    return parse_properties(text, name)


async def _import(
    args: ImportDirectory,
    settings: BrokerSettings,
    directory: LogDirectory,
    properties: dict[str, str],
) -> ImportReport:
    from rookery.cli.output.bar import ByteBar
    from rookery.clock import SystemRandom
    from rookery.direct.log import DirectLog
    from rookery.logdir.importer.run import DirectoryImport
    from rookery.logdir.importer.target import ImportSettings

    await _create_cluster(settings, directory.meta.cluster_id if directory.meta else "")
    async with DirectLog.open(place_of(settings), "import") as log:
        work = DirectoryImport(
            directory=directory,
            target=log,
            random=SystemRandom(),
            settings=ImportSettings(
                segment_bytes=args.segment_bytes,
                skip_damaged=args.skip_damaged,
                topics=frozenset(args.topic) if args.topic else None,
                properties=properties,
            ),
        )
        with ByteBar("imported", work.total_bytes, shown=not args.quiet) as bar:
            work.progress = bar.add
            report = await work.run()
        if not args.no_verify:
            with ByteBar("verified", work.total_bytes, shown=not args.quiet) as bar:
                await work.verify(bar.add)
        return report


async def _create_cluster(settings: BrokerSettings, cluster_id: str) -> None:
    """Begin a cluster where there is none yet; it gets the id of the one it comes from.

    Raises:
        ConfigError: the store is that of another cluster.
        Unavailable: the store or the cluster log cannot be reached.
    """
    from rookery.broker.storage.objectlog import check_store, claim_store, open_handles, replica_of
    from rookery.clock import SystemClock, SystemRandom
    from rookery.model.uuid import uuid_text

    handles = open_handles(settings)
    replica = replica_of(handles, SystemClock())
    try:
        await check_store(handles)
        await replica.open(follow=False)
        await claim_store(
            handles, replica, lambda: cluster_id or uuid_text(SystemRandom().token(16))
        )
    finally:
        await replica.close()
        await handles.close()


def _as_text(report: ImportReport, *, is_verified: bool) -> Iterator[str]:
    from rookery.cli.output.figures import size_text

    yield (
        f"{report.topics:,} topics, {report.partitions:,} partitions, {report.records:,} records "
        f"in {report.segments:,} segments, {size_text(report.bytes)}"
    )
    if report.already:
        yield f"{len(report.already):,} partitions were there already"
    yield (
        f"{report.producers:,} producers, {report.transactional_ids:,} transactional ids, "
        f"{report.offsets:,} offsets of {report.groups:,} groups"
    )
    if report.rules or report.users or report.quotas or report.tokens:
        yield (
            f"{report.rules:,} access rules, {report.users:,} users, quotas of "
            f"{report.quotas:,} entities, {report.tokens:,} delegation tokens"
        )
    for place, ids in report.ended.items():
        yield f"{place.text}: ended the open transactions of producers {', '.join(map(str, ids))}"
    for damage in report.skipped:
        yield f"left out: {damage.text}"
    for text in report.left_out:
        yield f"left out: {text}"
    if report.old_topics:
        yield (
            f"too old: all records of {', '.join(report.old_topics)} are older than they are kept, "
            "so that brokers will delete them; set retention.ms, or import with --properties"
        )
    if is_verified:
        yield f"verified: {report.verified:,} batches are the same in the store and on the disk"


COMMAND = Command(
    arguments=ImportDirectory,
    run=run,
    summary="Import a Kafka broker's data directory into the log and preserve all offsets.",
    example="rookery import /var/lib/kafka/data --to s3://bucket/log\n"
    "  rookery import /disk1/kafka /disk2/kafka --to ./rookery-data --topic orders",
)
