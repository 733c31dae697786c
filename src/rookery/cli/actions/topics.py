"""The work of `rookery topics`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TypedDict

from rich.console import Console
from rich.table import Table

from rookery.cli.actions.connecting import run_client
from rookery.cli.command import print_json
from rookery.client.admin import NewTopic
from rookery.client.client import Client
from rookery.client.cluster import TopicView
from rookery.client.configs import ConfigEntry, ResourceType
from rookery.errors import ApiError, ConfigError, ErrorCode
from rookery.model.offset import EARLIEST, LATEST
from rookery.model.partition import TopicPartition
from rookery.model.uuid import uuid_text


class PartitionRow(TypedDict):
    """A partition as described."""

    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    start: int | None
    end: int | None


class TopicRow(TypedDict):
    """A topic as described."""

    name: str
    id: str
    partitions: list[PartitionRow]
    configs: dict[str, str | None]


def list_topics(args: argparse.Namespace) -> int:
    """List all topics."""

    async def work(client: Client) -> dict[str, TopicView]:
        names = await client.admin.list_topics(include_internal=args.internal)
        return await client.admin.describe_topics(names) if names else {}

    views = run_client(args, work)
    if args.json:
        print_json([_summary(view) for view in views.values()])
    elif views:
        _print_list(views.values())
    else:
        print("There are no topics yet; `rookery topics create NAME` makes one.")
    return 0


def create(args: argparse.Namespace) -> int:
    """Create topics one by one, so that each is told of."""

    async def work(client: Client) -> dict[str, bool]:
        return {name: await _create(client, name, args) for name in dict.fromkeys(args.topics)}

    made = run_client(args, work)
    if args.json:
        print_json({"created": [name for name, is_new in made.items() if is_new]})
        return 0
    for name, is_new in made.items():
        verb = "could be created" if args.dry_run else "created" if is_new else "exists already"
        print(f"{name}: {verb}")
    return 0


def describe(args: argparse.Namespace) -> int:
    """Show topics with their offsets and configs."""

    async def work(client: Client) -> list[TopicRow]:
        names = list(dict.fromkeys(args.topics))
        views = await client.admin.describe_topics(names)
        return [await _describe(client, views[name], every=args.configs) for name in names]

    rows = run_client(args, work)
    if args.json:
        print_json(rows)
    else:
        console = Console()
        for row in rows:
            _print_topic(console, row)
    return 0


def delete(args: argparse.Namespace) -> int:
    """Delete topics one by one."""

    async def work(client: Client) -> dict[str, bool]:
        return {name: await _delete(client, name, args) for name in dict.fromkeys(args.topics)}

    gone = run_client(args, work)
    if args.json:
        print_json({"deleted": [name for name, was_there in gone.items() if was_there]})
        return 0
    for name, was_there in gone.items():
        print(f"{name}: {'deleted' if was_there else 'was not there'}")
    return 0


def alter(args: argparse.Namespace) -> int:
    """Change configs first, then the number of partitions."""
    changes: dict[str, str | None] = dict(args.config)
    changes.update(dict.fromkeys(args.delete_config))
    if not changes and args.partitions is None:
        raise ConfigError("nothing to change: give --partitions, --config or --delete-config")

    async def work(client: Client) -> TopicRow:
        if changes:
            await client.admin.configs.alter(ResourceType.TOPIC, args.topic, changes)
        if args.partitions is not None:
            await client.admin.create_partitions(args.topic, args.partitions)
        view = (await client.admin.describe_topics([args.topic]))[args.topic]
        return await _describe(client, view, every=False)

    row = run_client(args, work)
    if args.json:
        print_json(row)
    else:
        _print_topic(Console(), row)
    return 0


async def _create(client: Client, name: str, args: argparse.Namespace) -> bool:
    topic = NewTopic(
        name=name,
        partitions=args.partitions or -1,
        replication_factor=args.replication_factor or -1,
        configs=dict(args.config),
    )
    try:
        await client.admin.create_topics([topic], validate_only=args.dry_run)
    except ApiError as error:
        if args.if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        raise
    return True


async def _delete(client: Client, name: str, args: argparse.Namespace) -> bool:
    try:
        await client.admin.delete_topics([name])
    except ApiError as error:
        if args.if_exists and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        raise
    return True


async def _describe(client: Client, view: TopicView, *, every: bool) -> TopicRow:
    configs = await client.admin.configs.describe(ResourceType.TOPIC, view.name)
    places = [TopicPartition(view.name, number) for number in view.available]
    start = await client.offsets.find(dict.fromkeys(places, EARLIEST))
    end = await client.offsets.find(dict.fromkeys(places, LATEST))
    # A partition without a leader can be described, but not asked for its offsets.
    return TopicRow(
        name=view.name,
        id=uuid_text(view.id),
        partitions=[
            PartitionRow(
                partition=number,
                leader=one.leader,
                replicas=list(one.replicas),
                isr=list(one.isr),
                start=start[place].offset if place in start else None,
                end=end[place].offset if place in end else None,
            )
            for number, one in view.partitions.items()
            for place in (TopicPartition(view.name, number),)
        ],
        configs=_shown(configs.values(), every=every),
    )


def _shown(entries: Iterable[ConfigEntry], *, every: bool) -> dict[str, str | None]:
    chosen = [entry for entry in entries if every or entry.is_own]
    return {entry.name: entry.value for entry in sorted(chosen, key=lambda entry: entry.name)}


def _summary(view: TopicView) -> dict[str, object]:
    return {
        "name": view.name,
        "id": uuid_text(view.id),
        "partitions": len(view.partitions),
        "replication_factor": _replication(view),
        "internal": view.is_internal,
    }


def _replication(view: TopicView) -> int:
    return max((len(one.replicas) for one in view.partitions.values()), default=0)


def _print_list(views: Iterable[TopicView]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("topic", overflow="fold")
    table.add_column("partitions", justify="right")
    table.add_column("replicas", justify="right")
    table.add_column("without a leader", justify="right")
    for view in views:
        lost = len(view.partitions) - len(view.available)
        mark = f"[red]{lost}[/red]" if lost else "-"
        table.add_row(view.name, str(len(view.partitions)), str(_replication(view)), mark)
    Console().print(table)


def _print_topic(console: Console, row: TopicRow) -> None:
    total = sum((part["end"] or 0) - (part["start"] or 0) for part in row["partitions"])
    console.print(f"[bold]{row['name']}[/bold]  id {row['id']}, offsets span {total:,} records")
    table = Table(box=None, header_style="bold")
    for title in ("partition", "leader", "replicas", "in sync", "start", "end"):
        table.add_column(title, justify="right")
    for part in row["partitions"]:
        table.add_row(
            str(part["partition"]),
            "[red]none[/red]" if part["leader"] < 0 else str(part["leader"]),
            ",".join(map(str, part["replicas"])),
            ",".join(map(str, part["isr"])),
            "?" if part["start"] is None else f"{part['start']:,}",
            "?" if part["end"] is None else f"{part['end']:,}",
        )
    console.print(table)
    for name, value in row["configs"].items():
        console.print(f"  {name} = {value}", markup=False, soft_wrap=True)
