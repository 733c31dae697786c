"""`rookery recover`: rebuilds a lost cluster log from the objects in the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.fields import part, switch
from rookery.cli.options.storage import STORAGE_HELP, STORAGE_TITLE, LogAddress
from rookery.errors import ConfigError

if TYPE_CHECKING:
    from rookery.broker.settings import BrokerSettings
    from rookery.log.recover.recover import PlacedObject, RecoveryPlan


@dataclass(frozen=True, kw_only=True)
class RecoverLog(CommandArguments):
    """The log to recover, and how much of the recovery to carry out."""

    log: LogAddress = part(LogAddress, STORAGE_TITLE, STORAGE_HELP)
    dry_run: bool = switch("--dry-run", help="show what would be done without writing")
    yes: bool = switch(
        "--yes", help="rebuild the cluster log; stop all brokers first, as this is not checked"
    )
    append_unplaced: bool = switch(
        "--append-unplaced",
        help="append batches whose offsets are unknown to their partitions, in the order of "
        "their objects (default: set them aside)",
    )
    quiet: bool = switch("--quiet", help="do not show progress")


def run(args: RecoverLog) -> int:
    """Recover, or print what that would do; return 1 if not every record is back."""
    from rookery.cli.output.recovery import as_json, as_text
    from rookery.net.loop import run_loop

    if not args.yes and not args.dry_run:
        raise ConfigError(
            "stop all brokers first: one that still runs would write to a lost log; "
            "then confirm with --yes. --dry-run reports what would be done"
        )
    recovery, placed = run_loop(_recover(args, args.log.load_settings()))
    if args.json:
        print_json(as_json(recovery, placed, is_dry=args.dry_run))
    else:
        for line in as_text(recovery, placed, is_dry=args.dry_run):
            print(line)
    is_whole = not recovery.rebuilt.lost and not recovery.faults and not recovery.leftovers
    return 0 if is_whole and (not recovery.unplaced or placed) else 1


async def _recover(
    args: RecoverLog, settings: BrokerSettings
) -> tuple[RecoveryPlan, list[PlacedObject]]:
    from rookery.cli.output.faults import with_full_keys
    from rookery.cli.output.figures import LiveMeter
    from rookery.cli.sources import open_sources
    from rookery.clock import SystemClock, SystemRandom
    from rookery.log.recover.recover import append_unplaced, carry_out, check_lost, plan
    from rookery.store.wrappers import full_key

    clock = SystemClock()
    placed: list[PlacedObject] = []
    async with open_sources(settings, with_log=False) as sources:
        await check_lost(sources)
        with LiveMeter("read", shown=not args.quiet) as meter:
            recovery = await plan(sources, clock, meter.add)
        if not args.dry_run:
            await carry_out(sources, recovery, keep_unplaced=not args.append_unplaced)
            if args.append_unplaced and recovery.unplaced:
                placed = await append_unplaced(sources, recovery, clock, SystemRandom())
    recovery.faults = with_full_keys(recovery.faults, settings.namespace)
    recovery.rebuilt.unplaced = [
        unplaced._replace(key=full_key(settings.namespace, unplaced.key))
        for unplaced in recovery.unplaced
    ]
    return recovery, placed


COMMAND = Command(
    arguments=RecoverLog,
    run=run,
    summary="Rebuild a lost cluster log from the objects in the store.",
    example="rookery recover --store s3://bucket/log --cluster etcd://10.0.0.5:2379 --dry-run",
)
