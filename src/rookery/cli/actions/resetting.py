"""The work of `rookery groups reset`: where to, what that means in each partition, and doing it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import Final, TypedDict

from rookery.cli import arguments
from rookery.cli.actions.connecting import run_client
from rookery.cli.actions.consume import start_of
from rookery.cli.actions.tables import make_table, number_text, open_console
from rookery.cli.command import print_json
from rookery.client.client import Client
from rookery.clock import SystemClock
from rookery.errors import ApiError, ConfigError, ErrorCode
from rookery.model.offset import EARLIEST, LATEST
from rookery.model.partition import TopicPartition

_SPAN: Final = re.compile(r"\d{1,9}[smhd]")
_ISO_SPAN: Final = re.compile(
    r"P(?:(\d{1,6})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,9})S)?)?"
)
_ISO_SECONDS: Final = (86_400, 3_600, 60, 1)
_IDLE: Final = frozenset({"Empty", "Dead"})


class ResetRow(TypedDict):
    """Where one partition's offset is, and where it goes."""

    topic: str
    partition: int
    offset: int | None
    new_offset: int


def reset(args: argparse.Namespace) -> int:
    """Show where the offsets would go, and with --execute move them."""

    async def work(client: Client) -> list[ResetRow]:
        before = await client.groups.committed_offsets(args.group)
        places = await _places(client, args, before)
        wanted = await _targets(client, args, places, {at: before[at].offset for at in before})
        if args.execute:
            await _check_idle(client, args.group)
            await client.groups.commit_offsets(args.group, wanted)
        return [
            ResetRow(
                topic=at.topic,
                partition=at.partition,
                offset=before[at].offset if at in before else None,
                new_offset=wanted[at],
            )
            for at in places
        ]

    rows = run_client(args, work)
    if args.json:
        print_json({"group": args.group, "executed": args.execute, "offsets": rows})
    else:
        _print(args, rows)
    return 0


async def _check_idle(client: Client, group: str) -> None:
    """Refuse to move what members are reading: they would overwrite it."""
    try:
        found = await client.groups.describe(group)
    except ApiError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return
        raise
    if found.state not in _IDLE or found.members:
        raise ConfigError(
            f"group {group!r} is {found.state} and has {len(found.members)} members; stop them "
            "first: they would overwrite the offsets"
        )


async def _places(
    client: Client, args: argparse.Namespace, before: Mapping[TopicPartition, object]
) -> list[TopicPartition]:
    if not args.topic:
        if not before:
            raise ConfigError(f"group {args.group!r} has read nothing yet; name a --topic")
        return sorted(before)
    places: set[TopicPartition] = set()
    for text in args.topic:
        name, _, numbers = text.partition(":")
        count = len((await client.topic(name)).partitions)
        chosen = _numbers(text, numbers) if numbers else list(range(count))
        missing = [number for number in chosen if number >= count]
        if missing:
            raise ConfigError(f"--topic: {name} has {count} partitions, but no {missing[0]}")
        places |= {TopicPartition(name, number) for number in chosen}
    return sorted(places)


def _numbers(text: str, numbers: str) -> list[int]:
    try:
        return arguments.partitions(numbers)
    except argparse.ArgumentTypeError as error:
        raise ConfigError(f"--topic: {text!r}: {error}") from error


async def _targets(
    client: Client,
    args: argparse.Namespace,
    places: list[TopicPartition],
    before: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Find where each partition's offset goes; never beyond what the partition holds."""
    starts = await client.offsets.find(dict.fromkeys(places, EARLIEST))
    ends = await client.offsets.find(dict.fromkeys(places, LATEST))
    if args.shift_by is not None:
        wanted = {at: before.get(at, ends[at].offset) + args.shift_by for at in places}
    else:
        wanted = await start_of(client, places, where(args), SystemClock())
    return {at: min(max(wanted[at], starts[at].offset), ends[at].offset) for at in places}


def where(args: argparse.Namespace) -> str:
    """Return what the options ask for, in the words of `rookery consume --from`.

    Raises:
        ConfigError: a time or a span cannot be read.
    """
    if args.to_earliest or args.to_latest:
        return "beginning" if args.to_earliest else "end"
    if args.to_offset is not None:
        return str(args.to_offset)
    if args.to_datetime is not None:
        if args.to_datetime.isdecimal() or _SPAN.fullmatch(args.to_datetime):
            raise ConfigError(
                f"--to-datetime: {args.to_datetime!r} is no time such as 2026-01-31T12:00:00Z"
            )
        return str(args.to_datetime)
    return _span(args.by_duration)


def _span(text: str) -> str:
    if _SPAN.fullmatch(text):
        return text
    parts = _ISO_SPAN.fullmatch(text)
    if parts is None or not any(parts.groups()):
        raise ConfigError(f"--by-duration: {text!r} is no span such as 30s, 15m, 2h, 7d or PT1H30M")
    numbers = (int(part or 0) for part in parts.groups())
    return f"{sum(number * one for number, one in zip(numbers, _ISO_SECONDS, strict=True))}s"


def _print(args: argparse.Namespace, rows: list[ResetRow]) -> None:
    numbers = ("partition", "offset", "new offset")
    table = make_table(("topic", *numbers), right=numbers)
    for row in rows:
        offset = number_text(row["offset"], "-")
        table.add_row(row["topic"], str(row["partition"]), offset, f"{row['new_offset']:,}")
    open_console().print(table)
    if args.execute:
        print(f"{args.group}: moved")
    else:
        print("Nothing was moved; --execute does it.")
