"""`rookery export`: writes the log as the data directory of a Kafka broker."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.fields import option, part, positional, repeated, switch
from rookery.cli.options.storage import STORAGE_HELP, STORAGE_TITLE, LogAddress, place_of
from rookery.cli.options.values import count
from rookery.errors import ConfigError, Conflict

if TYPE_CHECKING:
    from rookery.broker.settings import BrokerSettings
    from rookery.cluster.state.partition import Partition
    from rookery.log.read.tail import Key, TailSlice
    from rookery.logdir.exporter.run import ExportReport


@dataclass(frozen=True, kw_only=True)
class ExportLog(CommandArguments):
    """The topics to export, and the settings of the Kafka broker that gets them."""

    directory: str = positional("DIR", "the directory to create; it must not exist")
    topic: tuple[str, ...] = repeated(
        "--topic", metavar="NAME", help="export only this topic; may be repeated"
    )
    node_id: int = option(
        "--node-id",
        type=count,
        default=1,
        metavar="N",
        help="the node id of the Kafka broker (default: 1)",
    )
    controller: str = option(
        "--controller",
        default="localhost:9093",
        metavar="HOST:PORT",
        help="the address of the Kafka broker's CONTROLLER listener (default: %(default)s)",
    )
    segment_bytes: int = option(
        "--segment-bytes",
        type=count,
        default=1 << 30,
        metavar="BYTES",
        help="the size of the Kafka broker's segments (default: 1024Mi)",
    )
    quiet: bool = switch("--quiet", help="do not show progress")
    log: LogAddress = part(LogAddress, STORAGE_TITLE, STORAGE_HELP)


def run(args: ExportLog) -> int:
    """Export; an existing directory is never changed."""
    from rookery.cli.output.figures import size_text
    from rookery.net.loop import run_loop

    folder = Path(args.directory).absolute()
    report = run_loop(_export(args, args.log.load_settings(), folder))
    if args.json:
        print_json(asdict(report))
        return 0
    print(
        f"{report.topics:,} topics, {report.partitions:,} partitions, {report.records:,} records "
        f"in {report.segments:,} segments, {size_text(report.bytes)}; {report.groups:,} groups, "
        f"{report.transactional_ids:,} transactional ids"
    )
    if report.access_rules or report.users or report.quotas:
        print(
            f"{report.access_rules:,} access rules, {report.users:,} users, quotas of "
            f"{report.quotas:,} entities"
        )
    for name in report.left_out:
        print(f"left out: topic {name!r}, since Kafka has a topic of its own under this name")
    print(f"start Kafka with node.id={args.node_id} and log.dirs={folder}")
    return 0


async def _export(args: ExportLog, settings: BrokerSettings, folder: Path) -> ExportReport:
    from rookery.cli.output.bar import ByteBar
    from rookery.clock import SystemRandom
    from rookery.direct.log import DirectLog
    from rookery.log.read.reader import SureReader
    from rookery.logdir.exporter.run import Export, ExportSettings
    from rookery.model.address import parse_address

    async with DirectLog.open(place_of(settings), "export") as log:
        state = await log.barrier()
        for name in args.topic:
            if name not in state.topics.by_name:
                raise ConfigError(f"--topic {name!r}: there is no such topic")
        reader = SureReader(log.reader, log.replica)

        async def read(key: Key, partition: Partition, offset: int, max_bytes: int) -> TailSlice:
            tail = await reader.read(key, partition, offset, max_bytes)
            if tail is None:
                raise Conflict("records were deleted while they were being exported; run it again")
            return tail

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
        with ByteBar("exported", export.total_bytes, shown=not args.quiet) as bar:
            export.progress = bar.add
            return await export.run()


COMMAND = Command(
    arguments=ExportLog,
    run=run,
    summary="Write the log as a data directory that a Kafka broker can start from.",
    example="rookery export ./kafka-data --store s3://bucket/log\n"
    "  rookery export ./kafka-data --data ./rookery-data --topic orders",
)
