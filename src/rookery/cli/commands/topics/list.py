"""`rookery topics list`: lists topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import part, switch

if TYPE_CHECKING:
    from rookery.client.views.topics import TopicSummary


@dataclass(frozen=True, kw_only=True)
class ListTopics(CommandArguments):
    """The topics to list."""

    internal: bool = switch("--internal", help="include internal topics")
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: ListTopics) -> int:
    """List topics."""
    from rookery.cli.session import run_client
    from rookery.client.views.topics import list_topics

    topics = run_client(
        "topics", args.address, lambda client: list_topics(client, include_internal=args.internal)
    )
    if args.json:
        print_json([_as_json(topic) for topic in topics])
    elif topics:
        _print_table(topics)
    else:
        print("There are no topics yet; `rookery topics create NAME` makes one.")
    return 0


def _as_json(topic: TopicSummary) -> dict[str, object]:
    return {
        "name": topic.name,
        "id": topic.id,
        "partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "internal": topic.is_internal,
    }


def _print_table(topics: Sequence[TopicSummary]) -> None:
    from rookery.cli.output.tables import make_table, open_console

    numbers = ("partitions", "replicas", "without a leader")
    table = make_table(("topic", *numbers), right=numbers)
    table.pad_edge = False
    for topic in topics:
        mark = f"[red]{topic.without_leader}[/red]" if topic.without_leader else "-"
        table.add_row(topic.name, str(topic.partitions), str(topic.replication_factor), mark)
    open_console().print(table)


COMMAND = Command(
    arguments=ListTopics,
    run=run,
    summary="List topics.",
    example="rookery topics list --bootstrap kafka-1:9092",
)
