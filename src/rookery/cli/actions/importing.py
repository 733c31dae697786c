"""The work of `rookery import`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from rookery.broker.settings import BrokerSettings
from rookery.broker.storage import Storage
from rookery.cli.actions.figures import size_text
from rookery.cli.actions.job import place_of
from rookery.cli.actions.progress import Bar
from rookery.cli.command import print_json
from rookery.cli.storing import load_settings
from rookery.clock import SystemClock, SystemRandom
from rookery.cluster.events.brokers import ClusterCreated
from rookery.cluster.replica import Replica
from rookery.cluster.state.state import FEATURE_LEVEL
from rookery.direct.log import DirectLog
from rookery.errors import ConfigError
from rookery.formats.logfile.properties import parse_properties
from rookery.log import snapshots
from rookery.log.lostlog import check_not_lost
from rookery.logdir.directory import LogDirectory
from rookery.logdir.files import read_text
from rookery.logdir.importing.report import Report
from rookery.logdir.importing.run import Import
from rookery.logdir.importing.target import ImportSettings
from rookery.model.uuid import uuid_text
from rookery.net.loop import run as run_loop


def run(args: argparse.Namespace) -> int:
    """Import; what was cut off goes on where it was."""
    settings = settings_for(args)
    directory = LogDirectory.open([Path(name) for name in args.directory])
    _check_topics(directory, args.topic)
    report = run_loop(_import(args, settings, directory, _properties(args.properties)))
    if args.json:
        print_json({**report.as_json(), "verified": not args.no_verify})
    else:
        for line in as_text(report, is_verified=not args.no_verify):
            print(line)
    return 0


def settings_for(args: argparse.Namespace) -> BrokerSettings:
    """Return where the log lies; `--to` is a store if it is a URL, else a folder."""
    settings = load_settings(args)
    if not args.to:
        return settings
    if ":" in args.to:
        return replace(settings, store=args.to)
    return replace(settings, data=args.to, store="", cluster="")


def _check_topics(directory: LogDirectory, names: list[str] | None) -> None:
    there = {name.topic for name in directory.partitions}
    for name in names or ():
        if name not in there:
            raise ConfigError(f"--topic {name!r}: the directory has no such topic")


def _properties(name: str | None) -> dict[str, str]:
    if name is None:
        return {}
    text = read_text(Path(name))
    if text is None:
        raise ConfigError(f"--properties {name}: there is no such file")
    return parse_properties(text, name)


async def _import(
    args: argparse.Namespace,
    settings: BrokerSettings,
    directory: LogDirectory,
    properties: dict[str, str],
) -> Report:
    await found(settings, directory.meta.cluster_id if directory.meta else "")
    async with DirectLog.open(place_of(settings), "import") as log:
        work = Import(
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
        with Bar("imported", work.total_bytes, shown=not args.quiet) as bar:
            work.progress = bar.add
            report = await work.run()
        if not args.no_verify:
            with Bar("verified", work.total_bytes, shown=not args.quiet) as bar:
                await work.verify(bar.add)
        return report


async def found(settings: BrokerSettings, cluster_id: str) -> None:
    """Begin a cluster where there is none yet; it gets the id of the one it comes from.

    Raises:
        ConfigError: the store is that of another cluster.
        Unavailable: something is out of reach.
    """
    storage = Storage(settings)
    replica = Replica(storage.cluster_log, SystemClock(), partial(snapshots.load, storage.store))
    try:
        await storage.check()
        await check_not_lost(storage.cluster_log, storage.store)
        await replica.open(follow=False)
        if not replica.state.cluster_id:
            owner = await storage.owner()
            if owner is not None:
                raise storage.foreign(owner, "")
            name = cluster_id or uuid_text(SystemRandom().token(16))
            await replica.create_cluster(
                ClusterCreated(cluster_id=name, feature_level=FEATURE_LEVEL)
            )
        await storage.claim(replica.state.cluster_id)
    finally:
        await replica.close()
        await storage.close()


def as_text(report: Report, *, is_verified: bool) -> Iterator[str]:
    """Tell what was done."""
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
    for place, ids in report.ended.items():
        yield f"{place.text}: ended the open transactions of producers {', '.join(map(str, ids))}"
    for one in report.skipped:
        yield f"left out: {one.text}"
    for text in report.left_out:
        yield f"left out: {text}"
    if report.old_topics:
        yield (
            f"too old: all records of {', '.join(report.old_topics)} are older than they are kept, "
            "so that brokers will delete them; set retention.ms, or import with --properties"
        )
    if is_verified:
        yield f"verified: {report.verified:,} batches are the same in the store and on the disk"
