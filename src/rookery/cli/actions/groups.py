"""The work of `rookery groups`, but for its resetting."""

from __future__ import annotations

import argparse
from typing import TypedDict

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rookery.cli.actions.connecting import run_client
from rookery.cli.actions.named import delete_each, for_each, show_each
from rookery.cli.actions.tables import make_table, number_text, open_console
from rookery.cli.command import print_json
from rookery.client.client import Client
from rookery.client.groups import GroupListing
from rookery.client.members import GroupDescription
from rookery.errors import ErrorCode
from rookery.model.offset import LATEST, CommittedOffset
from rookery.model.partition import TopicPartition


class MemberRow(TypedDict):
    """A member as described."""

    member: str
    instance: str | None
    client: str
    host: str
    partitions: int


class OffsetRow(TypedDict):
    """How far a group is in one partition."""

    topic: str
    partition: int
    offset: int | None
    end: int | None
    lag: int | None
    member: str | None
    metadata: str


class GroupRow(TypedDict):
    """A group as described."""

    group: str
    state: str
    kind: str
    assignor: str
    lag: int
    members: list[MemberRow]
    offsets: list[OffsetRow]


def list_groups(args: argparse.Namespace) -> int:
    """List all groups."""
    states = {state.lower() for state in args.state}

    async def work(client: Client) -> list[GroupListing]:
        found = await client.groups.list_all()
        return [one for one in found if not states or one.state.lower() in states]

    groups = run_client(args, work)
    if args.json:
        print_json([_summary(one) for one in groups])
    elif groups:
        _print_list(groups)
    else:
        print("There are no such groups." if states else "There are no groups yet.")
    return 0


def describe(args: argparse.Namespace) -> int:
    """Show groups with their members and their lag."""
    rows = for_each(args, args.groups, _describe)
    return show_each(args, list(rows.values()), _print_group)


def delete(args: argparse.Namespace) -> int:
    """Delete groups one by one."""
    return delete_each(
        args,
        args.groups,
        lambda client, name: client.groups.delete(name),
        ErrorCode.GROUP_ID_NOT_FOUND,
    )


async def _describe(client: Client, name: str) -> GroupRow:
    group = await client.groups.describe(name)
    committed = await client.groups.committed_offsets(name)
    readers = {place: one.member_id for one in group.members for place in one.partitions}
    places = sorted({*committed, *readers})
    ends = await client.offsets.find(dict.fromkeys(places, LATEST)) if places else {}
    offsets = [
        _offset_row(place, committed.get(place), ends[place].offset, readers.get(place))
        for place in places
    ]
    return GroupRow(
        group=name,
        state=group.state,
        kind=group.kind,
        assignor=group.assignor,
        lag=sum(row["lag"] or 0 for row in offsets),
        members=_member_rows(group),
        offsets=offsets,
    )


def _offset_row(
    place: TopicPartition, committed: CommittedOffset | None, end: int, member: str | None
) -> OffsetRow:
    offset = committed.offset if committed else None
    return OffsetRow(
        topic=place.topic,
        partition=place.partition,
        offset=offset,
        end=end,
        # What was never committed has no lag: where reading begins is the reader's to say.
        lag=None if offset is None else max(0, end - offset),
        member=member,
        metadata=committed.metadata if committed else "",
    )


def _member_rows(group: GroupDescription) -> list[MemberRow]:
    return [
        MemberRow(
            member=one.member_id,
            instance=one.instance_id,
            client=one.client_id,
            host=one.host.lstrip("/"),
            partitions=len(one.partitions),
        )
        for one in group.members
    ]


def _summary(one: GroupListing) -> dict[str, str]:
    return {
        "group": one.group_id,
        "state": one.state,
        "kind": one.kind,
        "protocol_type": one.protocol_type,
    }


def _print_list(groups: list[GroupListing]) -> None:
    table = make_table(("group", "state", "kind", "protocol"))
    for one in groups:
        table.add_row(escape(one.group_id), one.state, one.kind or "-", one.protocol_type or "-")
    open_console().print(table)


def _print_group(console: Console, row: GroupRow) -> None:
    assignor = f", assigned by {row['assignor']}" if row["assignor"] else ""
    console.print(
        f"[bold]{escape(row['group'])}[/bold]  {row['state']}{assignor}, "
        f"{len(row['members'])} members, {row['lag']:,} records behind",
        soft_wrap=True,
    )
    if row["members"]:
        console.print(_members_table(row["members"]))
    if row["offsets"]:
        console.print(_offsets_table(row["offsets"]))


def _members_table(members: list[MemberRow]) -> Table:
    table = make_table(("member", "instance", "client", "host", "partitions"), right={"partitions"})
    for one in members:
        texts = (one["member"], one["instance"] or "-", one["client"], one["host"])
        table.add_row(*map(escape, texts), str(one["partitions"]))
    return table


def _offsets_table(offsets: list[OffsetRow]) -> Table:
    numbers = ("partition", "offset", "end", "lag")
    table = make_table(("topic", *numbers, "member"), right=numbers)
    for row in offsets:
        table.add_row(
            row["topic"],
            str(row["partition"]),
            number_text(row["offset"], "-"),
            number_text(row["end"], "-"),
            number_text(row["lag"], "-"),
            escape(row["member"] or "-"),
        )
    return table
