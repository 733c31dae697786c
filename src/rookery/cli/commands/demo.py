"""`rookery demo`: kills a broker under load, and counts the records afterwards."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.cli.command import Command, CommandArguments
from rookery.cli.options.fields import option, switch
from rookery.cli.options.values import count


@dataclass(frozen=True, kw_only=True)
class RunDemo(CommandArguments):
    """The demo to run, and its size."""

    records: int = option(
        "--records",
        type=count,
        default=1_000_000,
        metavar="N",
        help="the number of records, such as 200k or 1M (default: %(default)s)",
    )
    durability: str = option(
        "--durability",
        choices=("disk", "os"),
        default="disk",
        help="when the broker acknowledges a record: after a sync to disk (default), or after "
        "a write to the operating system, as Kafka does",
    )
    tables: bool = switch(
        "--tables",
        help="instead, write a topic to tables on Spark and kill the pipeline while it runs",
    )
    secure: bool = switch(
        "--secure",
        help="instead, run a broker with TLS, logins and access rules: reject an unknown "
        "client, admit a user, then remove a rule",
    )
    proxy: bool = switch(
        "--proxy",
        help="produce through a proxy that renames the topic, and kill the upstream broker",
    )
    report: str = option(
        "--report",
        default="rookery-report.html",
        metavar="FILE",
        help="the file for the pipeline's report, with --tables (default: %(default)s)",
    )


def run(args: RunDemo) -> int:
    """Return 0 if every record came back once and in order."""
    if args.secure:
        from rookery.cli.demo.security import run_secure_demo

        return run_secure_demo(as_json=args.json)
    if args.proxy:
        from rookery.cli.demo.proxy import run_proxy_demo

        return run_proxy_demo(args.records, args.durability, as_json=args.json)
    if args.tables:
        from rookery.cli.demo.tables import run_tables_demo

        return run_tables_demo(args.records, args.durability, args.report, as_json=args.json)
    from rookery.cli.demo.records import run_records_demo

    return run_records_demo(args.records, args.durability, as_json=args.json)


COMMAND = Command(
    arguments=RunDemo,
    run=run,
    summary="Demonstrate durability: produce a million records, kill the broker, verify every "
    "record.",
    example="rookery demo --records 1M",
)
