"""The work of `rookery export`."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from rookery.broker.settings import BrokerSettings
from rookery.cli.actions.figures import size_text
from rookery.cli.actions.job import place_of
from rookery.cli.actions.progress import Bar
from rookery.cli.command import print_json
from rookery.cli.storing import load_settings
from rookery.clock import SystemRandom
from rookery.cluster.state.partition import Partition
from rookery.direct.log import DirectLog
from rookery.errors import ConfigError, Conflict
from rookery.log.rereads import SureReader
from rookery.log.tail import Key, Slice
from rookery.logdir.exporting.run import Export, Exported, ExportSettings
from rookery.model.address import parse_address
from rookery.net.loop import run as run_loop


def run(args: argparse.Namespace) -> int:
    """Export; a directory that is there is never touched."""
    folder = Path(args.directory).absolute()
    report = run_loop(_export(args, load_settings(args), folder))
    if args.json:
        print_json(asdict(report))
        return 0
    print(
        f"{report.topics:,} topics, {report.partitions:,} partitions, {report.records:,} records "
        f"in {report.segments:,} segments, {size_text(report.bytes)}; {report.groups:,} groups, "
        f"{report.transactional_ids:,} transactional ids"
    )
    for name in report.left_out:
        print(f"left out: topic {name!r}, since Kafka has a topic of its own under this name")
    print(f"start Kafka with node.id={args.node_id} and log.dirs={folder}")
    return 0


async def _export(args: argparse.Namespace, settings: BrokerSettings, folder: Path) -> Exported:
    async with DirectLog.open(place_of(settings), "export") as log:
        state = await log.barrier()
        for name in args.topic or ():
            if name not in state.topics.by_name:
                raise ConfigError(f"--topic {name!r}: there is no such topic")
        reader = SureReader(log.reader, log.replica)

        async def read(key: Key, partition: Partition, offset: int, max_bytes: int) -> Slice:
            found = await reader.read(key, partition, offset, max_bytes)
            if found is None:
                raise Conflict("records were deleted while they were being exported; run it again")
            return found

        export = Export(
            state=state,
            read=read,
            folder=folder,
            clock=log.clock,
            random=SystemRandom(),
            settings=ExportSettings(
                node_id=args.node_id,
                controller=parse_address(args.controller, "--controller"),
                segment_bytes=args.segment_bytes,
                topics=frozenset(args.topic) if args.topic else None,
            ),
        )
        with Bar("exported", export.total_bytes, shown=not args.quiet) as bar:
            export.progress = bar.add
            return await export.run()
