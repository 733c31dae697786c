"""`rookery demo`: a broker under load is killed and comes back; no record may be missing."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.cli.command import Command, CommandArguments
from rookery.cli.options.fields import option, switch
from rookery.cli.options.values import count


@dataclass(frozen=True, kw_only=True)
class RunDemo(CommandArguments):
    """Which demo, and how much of it."""

    records: int = option(
        "--records",
        type=count,
        default=1_000_000,
        metavar="N",
        help="how many; 200k and 1M will do (default: %(default)s)",
    )
    durability: str = option(
        "--durability",
        choices=("disk", "os"),
        default="disk",
        help="what a record has survived when it is acknowledged: a sync to disk (default), or a "
        "write to the operating system, as with Kafka",
    )
    tables: bool = switch(
        "--tables",
        help="the other half instead: a topic to tables on Spark, the pipeline killed on the way",
    )
    secure: bool = switch(
        "--secure",
        help="a closed broker instead: a stranger is refused, a user admitted, a rule removed",
    )
    report: str = option(
        "--report",
        default="rookery-report.html",
        metavar="FILE",
        help="where --tables leaves the pipeline's report (default: %(default)s)",
    )


def run(args: RunDemo) -> int:
    """Return 0 if every record came back once and in order."""
    if args.secure:
        from rookery.cli.demo.closed import run_secure_demo

        return run_secure_demo(as_json=args.json)
    if args.tables:
        from rookery.cli.demo.tables import run_tables_demo

        return run_tables_demo(args.records, args.durability, args.report, as_json=args.json)
    from rookery.cli.demo.records import run_records_demo

    return run_records_demo(args.records, args.durability, as_json=args.json)


COMMAND = Command(
    arguments=RunDemo,
    run=run,
    summary="See it work: a million records, a killed broker, and nothing lost.",
    example="rookery demo --records 1M",
)
