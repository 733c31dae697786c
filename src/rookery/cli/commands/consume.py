"""`rookery consume`: prints the records of a topic as lines."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments
from rookery.cli.options import values
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import option, part, positional, switch
from rookery.errors import Unavailable

if TYPE_CHECKING:
    from rookery.cli.output.lines import Write
    from rookery.client.client import Client
    from rookery.client.fetch import FetchResult, FetchSettings
    from rookery.model.partition import TopicPartition
    from rookery.records.recordcodec import Record


@dataclass(frozen=True, kw_only=True)
class ConsumeTopic(CommandArguments):
    """The records to read, and the form to print them in."""

    topic: str = positional("TOPIC", "the topic")
    start: str = option(
        "--from",
        default="beginning",
        metavar="WHERE",
        help="where to start: beginning (default), end, an offset, a time such as "
        "2026-01-31T12:00:00Z, or a time span before now such as 30s, 15m, 2h or 7d",
    )
    follow: bool = switch("-F", "--follow", help="keep waiting for new records")
    max: int | None = option(
        "-n", "--max", type=values.count, metavar="N", help="stop after N records"
    )
    partitions: tuple[int, ...] | None = option(
        "-p",
        "--partitions",
        type=values.partitions,
        metavar="0,2,5-7",
        help="the partitions to read (default: all)",
    )
    format: str = option(
        "--format",
        choices=("value", "key-value", "json", "raw"),
        default="value",
        help="value or key-value: one line per record; json: one JSON object with all fields "
        "per line; raw: the bytes of the values without separators",
    )
    key_separator: str = option(
        "-k",
        "--key-separator",
        default="\\t",
        metavar="TEXT",
        help="the separator between key and value; \\t is a tab (default)",
    )
    committed: bool = switch("--committed", help="read only committed transactions")
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: ConsumeTopic) -> int:
    """Print records; `--json` is the same as `--format json`."""
    from rookery.cli.output.lines import writer
    from rookery.cli.positions import parse_position
    from rookery.cli.session import run_client
    from rookery.clock import SystemClock

    parse_position(args.start, SystemClock())  # a mistake shows before anything is connected
    form = "json" if args.json else args.format
    write = writer(form, args.key_separator.replace("\\t", "\t").encode())
    run_client("consume", args.address, lambda client: _consume(client, args, write))
    return 0


async def _consume(client: Client, args: ConsumeTopic, write: Write) -> None:
    from rookery.cli.partitions import ends_of, places_of
    from rookery.cli.positions import find_starts
    from rookery.client.fetch import FetchSettings, Isolation

    isolation = Isolation.READ_COMMITTED if args.committed else Isolation.READ_UNCOMMITTED
    settings = FetchSettings(isolation=isolation)
    places = await places_of(client, args.topic, args.partitions)
    positions = await find_starts(client, places, args.start, client.clock)
    ends = None
    if not args.follow:
        ends = await ends_of(client, places, committed=args.committed)
    printer = _Printer(write, args.max, ends)
    while not await _print_all(client, positions, ends, settings, printer):
        print(f"rookery consume: waiting for {args.address.bootstrap}", file=sys.stderr)


async def _print_all(
    client: Client,
    positions: dict[TopicPartition, int],
    ends: Mapping[TopicPartition, int] | None,
    settings: FetchSettings,
    printer: _Printer,
) -> bool:
    """Print everything; return False if a follower must try again."""
    from rookery.cli.partitions import fetch_all

    try:
        async with aclosing(fetch_all(client, positions, ends, settings)) as fetches:
            async for fetched in fetches:
                printer.print(fetched)
                positions[fetched.place] = fetched.next_offset
                if printer.is_done:
                    return True
    except Unavailable:
        # A command that follows a topic continues through a restart of its brokers.
        if ends is not None:
            raise
        return False
    return True


class _Printer:
    """Writes records to standard output, as many as are wanted."""

    def __init__(
        self, write: Write, most: int | None, ends: Mapping[TopicPartition, int] | None
    ) -> None:
        self._write = write
        self._left = most
        self._ends = ends

    @property
    def is_done(self) -> bool:
        return self._left == 0

    def print(self, fetched: FetchResult) -> None:
        place, write, out = fetched.place, self._write, sys.stdout.buffer
        records: Iterable[Record] = fetched.records()
        if self._ends is not None:
            end = self._ends[place]
            records = (record for record in records if record.offset < end)
        chosen = list(islice(records, self._left))
        out.writelines(write(place, record) for record in chosen)
        out.flush()
        if self._left is not None:
            self._left -= len(chosen)


COMMAND = Command(
    arguments=ConsumeTopic,
    run=run,
    summary="Print the records of a topic up to its end; with --follow, also new records.",
    example="rookery consume birds --from 15m --follow --format json",
)
