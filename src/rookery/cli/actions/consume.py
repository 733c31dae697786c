"""The work of `rookery consume`."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from rookery.cli.actions.connecting import run_client
from rookery.cli.actions.lines import Write, writer
from rookery.cli.actions.reading import ends_of, fetch_all, places_of
from rookery.client.client import Client
from rookery.client.fetch import Fetched, FetchSettings, Isolation
from rookery.clock import Clock, SystemClock
from rookery.errors import ConfigError, Unavailable
from rookery.model.offset import EARLIEST, LATEST
from rookery.model.partition import TopicPartition
from rookery.records.record import Record

_SPAN: Final = re.compile(r"(\d{1,9})([smhd])")
_SPAN_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def consume(args: argparse.Namespace) -> int:
    """Print what a topic holds; return the exit code."""
    form = "json" if args.json else args.format
    write = writer(form, args.key_separator.replace("\\t", "\t").encode())
    isolation = Isolation.READ_COMMITTED if args.committed else Isolation.READ_UNCOMMITTED
    settings = FetchSettings(isolation=isolation)
    place_of(args.start, SystemClock())  # a mistake in it shows before anything is connected

    async def work(client: Client) -> None:
        places = await places_of(client, args.topic, args.partitions)
        positions = await start_of(client, places, args.start, client.clock)
        ends = None
        if not args.follow:
            ends = await ends_of(client, places, committed=args.committed)
        printer = _Printer(write, args.max, ends)
        while not await _print_all(client, positions, ends, settings, printer):
            print(f"rookery consume: waiting for {args.bootstrap}", file=sys.stderr)

    run_client(args, work)
    return 0


async def _print_all(
    client: Client,
    positions: dict[TopicPartition, int],
    ends: Mapping[TopicPartition, int] | None,
    settings: FetchSettings,
    printer: _Printer,
) -> bool:
    """Print everything; return False if a follower must try again."""
    try:
        async with aclosing(fetch_all(client, positions, ends, settings)) as found:
            async for fetched in found:
                printer.print(fetched)
                positions[fetched.place] = fetched.next_offset
                if printer.is_done:
                    return True
    except Unavailable:
        # Who follows a topic wants to see it through a restart of its brokers.
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

    def print(self, fetched: Fetched) -> None:
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


async def start_of(
    client: Client, places: list[TopicPartition], start: str, clock: Clock
) -> dict[TopicPartition, int]:
    """Find the offset of each partition that a text such as `end` or `15m` stands for."""
    where = place_of(start, clock)
    if where is None:
        return dict.fromkeys(places, int(start))
    found = await client.offsets.find(dict.fromkeys(places, where))
    late = [place for place, row in found.items() if row.offset < 0]
    # No record is that young: so what comes next is the first.
    ends = await ends_of(client, late) if late else {}
    return {place: ends.get(place, row.offset) for place, row in found.items()}


def place_of(start: str, clock: Clock) -> int | None:
    """Turn a text into what offsets are found by: a special place or a time; None for an offset.

    Raises:
        ConfigError: it is none of these.
    """
    if start in {"beginning", "end"}:
        return EARLIEST if start == "beginning" else LATEST
    if start.isdecimal():
        return None
    if span := _SPAN.fullmatch(start):
        return max(0, clock.now_ms() - int(span[1]) * _SPAN_MS[span[2]])
    try:
        time = datetime.fromisoformat(start)
    except ValueError:
        raise ConfigError(
            f"--from: {start!r} is neither beginning, end, an offset, a time such as "
            "2026-01-31T12:00:00Z, nor a span such as 15m"
        ) from None
    # A time without a zone is the user's own.
    return max(
        0, int((time if time.tzinfo else time.astimezone()).astimezone(UTC).timestamp() * 1000)
    )
