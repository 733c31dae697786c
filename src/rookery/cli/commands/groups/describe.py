"""`rookery groups describe`: shows members, offsets and lag of groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import part, positional

if TYPE_CHECKING:
    from rich.table import Table

    from rookery.client.views.groups import GroupOverview, MemberOverview, PartitionLag


@dataclass(frozen=True, kw_only=True)
class DescribeGroups(CommandArguments):
    """The groups to describe."""

    groups: tuple[str, ...] = positional("GROUP", "the names of the groups", nargs="+")
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: DescribeGroups) -> int:
    """Show groups with their members and their lag."""
    from rookery.cli.session import run_client
    from rookery.client.views.groups import describe_groups

    groups = run_client("groups", args.address, lambda client: describe_groups(client, args.groups))
    if args.json:
        print_json([_as_json(group) for group in groups])
        return 0
    for group in groups:
        _print_group(group)
    return 0


def _as_json(group: GroupOverview) -> dict[str, object]:
    return {
        "group": group.group,
        "state": group.state,
        "kind": group.kind,
        "assignor": group.assignor,
        "lag": group.lag,
        "members": [
            {
                "member": member.member,
                "instance": member.instance,
                "client": member.client,
                "host": member.host,
                "partitions": len(member.partitions),
            }
            for member in group.members
        ],
        "offsets": [
            {
                "topic": offset.topic,
                "partition": offset.partition,
                "offset": offset.offset,
                "end": offset.end,
                "lag": offset.lag,
                "member": offset.member,
                "metadata": offset.metadata,
            }
            for offset in group.offsets
        ],
    }


def _print_group(group: GroupOverview) -> None:
    from rich.markup import escape

    from rookery.cli.output.tables import open_console

    console = open_console()
    assignor = f", assigned by {group.assignor}" if group.assignor else ""
    console.print(
        f"[bold]{escape(group.group)}[/bold]  {group.state}{assignor}, "
        f"{len(group.members)} members, {group.lag:,} records behind",
        soft_wrap=True,
    )
    if group.members:
        console.print(_members_table(group.members))
    if group.offsets:
        console.print(_offsets_table(group.offsets))


def _members_table(members: Sequence[MemberOverview]) -> Table:
    from rich.markup import escape

    from rookery.cli.output.tables import make_table

    table = make_table(("member", "instance", "client", "host", "partitions"), right={"partitions"})
    for member in members:
        texts = (member.member, member.instance or "-", member.client, member.host)
        table.add_row(*map(escape, texts), str(len(member.partitions)))
    return table


def _offsets_table(offsets: Sequence[PartitionLag]) -> Table:
    from rich.markup import escape

    from rookery.cli.output.tables import make_table, number_text

    numbers = ("partition", "offset", "end", "lag")
    table = make_table(("topic", *numbers, "member"), right=numbers)
    for offset in offsets:
        table.add_row(
            offset.topic,
            str(offset.partition),
            number_text(offset.offset, "-"),
            number_text(offset.end, "-"),
            number_text(offset.lag, "-"),
            escape(offset.member or "-"),
        )
    return table


COMMAND = Command(
    arguments=DescribeGroups,
    run=run,
    summary="Show the members, offsets and lag of groups.",
    example="rookery groups describe watchers --json",
)
