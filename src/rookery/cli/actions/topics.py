"""The work of `rookery topics`."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Iterable
from typing import TypedDict

from rich.console import Console

from rookery.cli.actions.connecting import run_client
from rookery.cli.actions.named import delete_each, for_each, is_done, show_each
from rookery.cli.actions.tables import make_table, number_text, open_console
from rookery.cli.command import print_json
from rookery.client.admin import NewTopic
from rookery.client.client import Client
from rookery.client.cluster import TopicView
from rookery.client.configs import ConfigEntry, ResourceType
from rookery.errors import ConfigError, ErrorCode
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
    passed_over = ErrorCode.TOPIC_ALREADY_EXISTS if args.if_not_exists else None

    def create_one(client: Client, name: str) -> Awaitable[bool]:
        work = client.admin.create_topics([_new_topic(name, args)], validate_only=args.dry_run)
        return is_done(work, passed_over)

    made = for_each(args, args.topics, create_one)
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

    return show_each(args, run_client(args, work), _print_topic)


def delete(args: argparse.Namespace) -> int:
    """Delete topics one by one."""
    return delete_each(
        args,
        args.topics,
        lambda client, name: client.admin.delete_topics([name]),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )


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
        _print_topic(open_console(), row)
    return 0


def _new_topic(name: str, args: argparse.Namespace) -> NewTopic:
    return NewTopic(
        name=name,
        partitions=args.partitions or -1,
        replication_factor=args.replication_factor or -1,
        configs=dict(args.config),
    )


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
    numbers = ("partitions", "replicas", "without a leader")
    table = make_table(("topic", *numbers), right=numbers)
    table.pad_edge = False
    for view in views:
        lost = len(view.partitions) - len(view.available)
        mark = f"[red]{lost}[/red]" if lost else "-"
        table.add_row(view.name, str(len(view.partitions)), str(_replication(view)), mark)
    open_console().print(table)


def _print_topic(console: Console, row: TopicRow) -> None:
    total = sum((part["end"] or 0) - (part["start"] or 0) for part in row["partitions"])
    console.print(f"[bold]{row['name']}[/bold]  id {row['id']}, offsets span {total:,} records")
    titles = ("partition", "leader", "replicas", "in sync", "start", "end")
    table = make_table(titles, right=titles)
    for part in row["partitions"]:
        table.add_row(
            str(part["partition"]),
            "[red]none[/red]" if part["leader"] < 0 else str(part["leader"]),
            ",".join(map(str, part["replicas"])),
            ",".join(map(str, part["isr"])),
            number_text(part["start"], "?"),
            number_text(part["end"], "?"),
        )
    console.print(table)
    for name, value in row["configs"].items():
        console.print(f"  {name} = {value}", markup=False, soft_wrap=True)
