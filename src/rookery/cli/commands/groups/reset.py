"""`rookery groups reset`: shows the new offsets of a group, and commits them with `--execute`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options import values
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import option, part, positional, repeated, switch
from rookery.errors import ApiError, ConfigError, ErrorCode

if TYPE_CHECKING:
    from rookery.client.client import Client
    from rookery.model.partition import TopicPartition

_SPAN: Final = re.compile(r"\d{1,9}[smhd]")
_ISO_SPAN: Final = re.compile(
    r"P(?:(\d{1,6})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,9})S)?)?"
)
_ISO_SECONDS: Final = (86_400, 3_600, 60, 1)
_IDLE: Final = frozenset({"Empty", "Dead"})


@dataclass(frozen=True, kw_only=True)
class ResetGroup(CommandArguments):
    """The partitions to reset, and their new positions."""

    group: str = positional("GROUP", "the name of the group")
    topic: tuple[str, ...] = repeated(
        "--topic",
        metavar="TOPIC[:PARTITIONS]",
        help="reset only this topic or these partitions, such as birds or birds:0,2-4; may be "
        "repeated (default: all partitions with offsets of the group)",
    )
    to_earliest: bool = switch("--to-earliest", one_of="target", help="move to the first record")
    to_latest: bool = switch("--to-latest", one_of="target", help="move to the end")
    to_offset: int | None = option(
        "--to-offset",
        one_of="target",
        type=values.count_or_none,
        metavar="N",
        help="move to this offset",
    )
    to_datetime: str | None = option(
        "--to-datetime",
        one_of="target",
        metavar="TIME",
        help="move to the first record at or after this time, such as 2026-01-31T12:00:00Z",
    )
    by_duration: str | None = option(
        "--by-duration",
        one_of="target",
        metavar="SPAN",
        help="move to the first record at or after this time before now: 30s, 15m, 2h, 7d or "
        "PT1H30M",
    )
    shift_by: int | None = option(
        "--shift-by",
        one_of="target",
        type=int,
        metavar="N",
        help="move N records forward, or back if N is negative",
    )
    execute: bool = switch("--execute", help="commit the new offsets (default: only show them)")
    address: ClusterOptions = part(ClusterOptions, "connection")

    @property
    def position(self) -> str:
        """Return the target of the options in the syntax of `rookery consume --from`.

        Raises:
            ConfigError: a time or a span cannot be read.
        """
        if self.to_earliest or self.to_latest:
            return "beginning" if self.to_earliest else "end"
        if self.to_offset is not None:
            return str(self.to_offset)
        if self.to_datetime is not None:
            if self.to_datetime.isdecimal() or _SPAN.fullmatch(self.to_datetime):
                raise ConfigError(
                    f"--to-datetime: {self.to_datetime!r} is not a time "
                    "such as 2026-01-31T12:00:00Z"
                )
            return self.to_datetime
        return _span(self.by_duration or "")


@dataclass(frozen=True)
class OffsetMove:
    """Where one partition's offset is, and where it goes."""

    topic: str
    partition: int
    offset: int | None
    new_offset: int


def run(args: ResetGroup) -> int:
    """Show where the offsets would go, and with --execute move them."""
    from rookery.cli.session import run_client

    moves = run_client("groups", args.address, lambda client: _reset(client, args))
    if args.json:
        rows = [asdict(move) for move in moves]
        print_json({"group": args.group, "executed": args.execute, "offsets": rows})
    else:
        _print(args, moves)
    return 0


async def _reset(client: Client, args: ResetGroup) -> list[OffsetMove]:
    before = await client.groups.committed_offsets(args.group)
    places = await _places(client, args, before)
    wanted = await _targets(client, args, places, {at: before[at].offset for at in before})
    if args.execute:
        await _check_idle(client, args.group)
        await client.groups.commit_offsets(args.group, wanted)
    return [
        OffsetMove(at.topic, at.partition, before[at].offset if at in before else None, wanted[at])
        for at in places
    ]


async def _check_idle(client: Client, group: str) -> None:
    """Refuse to move what members are reading: they would overwrite it."""
    try:
        described = await client.groups.describe(group)
    except ApiError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return
        raise
    if described.state not in _IDLE or described.members:
        raise ConfigError(
            f"group {group!r} is {described.state} and has {len(described.members)} members; "
            "stop them first: they would overwrite the offsets"
        )


async def _places(
    client: Client, args: ResetGroup, before: Mapping[TopicPartition, object]
) -> list[TopicPartition]:
    from rookery.model.partition import TopicPartition

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
        return values.partitions(numbers)
    except argparse.ArgumentTypeError as error:
        raise ConfigError(f"--topic: {text!r}: {error}") from error


async def _targets(
    client: Client,
    args: ResetGroup,
    places: list[TopicPartition],
    before: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Find where each partition's offset goes; never beyond what the partition holds."""
    from rookery.cli.positions import find_starts
    from rookery.clock import SystemClock
    from rookery.model.offset import EARLIEST, LATEST

    starts = await client.offsets.find(dict.fromkeys(places, EARLIEST))
    ends = await client.offsets.find(dict.fromkeys(places, LATEST))
    if args.shift_by is not None:
        wanted = {at: before.get(at, ends[at].offset) + args.shift_by for at in places}
    else:
        wanted = await find_starts(client, places, args.position, SystemClock())
    return {at: min(max(wanted[at], starts[at].offset), ends[at].offset) for at in places}


def _span(text: str) -> str:
    if _SPAN.fullmatch(text):
        return text
    parts = _ISO_SPAN.fullmatch(text)
    if parts is None or not any(parts.groups()):
        raise ConfigError(
            f"--by-duration: {text!r} is not a span such as 30s, 15m, 2h, 7d or PT1H30M"
        )
    numbers = (int(part or 0) for part in parts.groups())
    total = sum(number * seconds for number, seconds in zip(numbers, _ISO_SECONDS, strict=True))
    return f"{total}s"


def _print(args: ResetGroup, moves: Sequence[OffsetMove]) -> None:
    from rookery.cli.output.tables import make_table, number_text, open_console

    numbers = ("partition", "offset", "new offset")
    table = make_table(("topic", *numbers), right=numbers)
    for move in moves:
        offset = number_text(move.offset, "-")
        table.add_row(move.topic, str(move.partition), offset, f"{move.new_offset:,}")
    open_console().print(table)
    if args.execute:
        print(f"{args.group}: moved")
    else:
        print("Nothing was moved; --execute does it.")


COMMAND = Command(
    arguments=ResetGroup,
    run=run,
    summary="Reset the offsets of a group without members; only shows them without --execute.",
    example="rookery groups reset watchers --topic birds:0,2 --to-earliest --execute",
)
