"""The work of `rookery fsck`."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from rookery.broker.settings import BrokerSettings
from rookery.cli.actions.figures import Meter, size_text
from rookery.cli.actions.opening import opened
from rookery.cli.command import print_json
from rookery.cli.storing import load_settings
from rookery.log.fsck.check import check
from rookery.log.fsck.fault import Fault
from rookery.log.fsck.progress import Report
from rookery.net.loop import run as run_loop
from rookery.store.namespaced import full_key


def run(args: argparse.Namespace) -> int:
    """Check the log; the exit code tells whether it is sound."""
    report = run_loop(_check(args, load_settings(args)))
    if args.json:
        print_json(report.as_json())
    else:
        for line in as_text(report):
            print(line)
    return 0 if report.is_clean else 1


async def _check(args: argparse.Namespace, settings: BrokerSettings) -> Report:
    async with opened(settings, with_log=True) as sources:
        with Meter("checked", shown=not args.quiet) as meter:
            report = await check(sources, is_quick=args.quick, progress=meter.add)
    report.faults = with_full_keys(report.faults, settings.namespace)
    report.notes = with_full_keys(report.notes, settings.namespace)
    return report


def with_full_keys(faults: list[Fault], namespace: str) -> list[Fault]:
    """Name objects as they are called in the store."""
    return [replace(one, key=full_key(namespace, one.key)) for one in faults]


def as_text(report: Report) -> Iterator[str]:
    """Tell what was found."""
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


def fault_text(fault: Fault) -> Iterator[str]:
    """Tell one fault, and what to do about it."""
    yield f"{fault.kind:<10} {fault.key}"
    where = ""
    if fault.where is not None:
        topic, partition, base, end = fault.where
        where = f"topic {topic}, partition {partition}"
        where += f", offsets {base} to {end - 1}: " if end > base else ": "
    yield f"{'':<10} {where}{fault.text}"
    yield f"{'':<10} → {fault.advice}"
