"""`rookery fsck`: checks the whole log against the cluster log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.fields import part, switch
from rookery.cli.options.storage import STORAGE_HELP, STORAGE_TITLE, LogAddress

if TYPE_CHECKING:
    from rookery.broker.settings import BrokerSettings
    from rookery.log.check.progress import CheckReport


@dataclass(frozen=True, kw_only=True)
class CheckLog(CommandArguments):
    """The log to check, and how thoroughly."""

    log: LogAddress = part(LogAddress, STORAGE_TITLE, STORAGE_HELP)
    quick: bool = switch("--quick", help="check only names and sizes; read no batches")
    quiet: bool = switch("--quiet", help="do not show progress")


def run(args: CheckLog) -> int:
    """Check the log; return 1 if there are faults."""
    from rookery.net.loop import run_loop

    report = run_loop(_check(args, args.log.load_settings()))
    if args.json:
        print_json(report.as_json())
    else:
        for line in _as_text(report):
            print(line)
    return 0 if report.is_clean else 1


async def _check(args: CheckLog, settings: BrokerSettings) -> CheckReport:
    from rookery.cli.output.faults import with_full_keys
    from rookery.cli.output.figures import LiveMeter
    from rookery.cli.sources import open_sources
    from rookery.log.check.check import check

    async with open_sources(settings, with_log=True) as sources:
        with LiveMeter("checked", shown=not args.quiet) as meter:
            report = await check(sources, is_quick=args.quick, progress=meter.add)
    report.faults = with_full_keys(report.faults, settings.namespace)
    report.notes = with_full_keys(report.notes, settings.namespace)
    return report


def _as_text(report: CheckReport) -> Iterator[str]:
    from rookery.cli.output.faults import fault_text
    from rookery.cli.output.figures import size_text

    for fault in (*report.notes, *report.faults):
        yield from fault_text(fault)
    if report.left_out:
        yield f"… and {report.left_out:,} faults more"
    yield (
        f"{report.topics:,} topics, {report.partitions:,} partitions, {report.rows:,} rows in "
        f"{report.objects:,} objects, {size_text(report.bytes)}, as of entry {report.entry}"
    )
    if report.is_clean:
        yield "clean: nothing is wrong"
        return
    kinds = Counter(fault.kind for fault in report.faults)
    counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
    yield f"not clean: {counts}"


COMMAND = Command(
    arguments=CheckLog,
    run=run,
    summary="Check the whole log against the cluster log and report every fault.",
    example="rookery fsck --data ./rookery-data\n"
    "  rookery fsck --store s3://bucket/log --cluster etcd://10.0.0.5:2379 --quick",
)
