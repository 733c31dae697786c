"""`rookery topics describe`: shows partitions, leaders, offsets and configs of topics."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import part, positional, switch


@dataclass(frozen=True, kw_only=True)
class DescribeTopics(CommandArguments):
    """The topics to describe, and what to show of them."""

    topics: tuple[str, ...] = positional("TOPIC", "the names of the topics", nargs="+")
    configs: bool = switch("--configs", help="show all configs instead of only those that were set")
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: DescribeTopics) -> int:
    """Show topics with their offsets and configs."""
    from rookery.cli.output.topics import print_topic, topic_as_json
    from rookery.cli.session import run_client
    from rookery.client.views.topics import describe_topics

    topics = run_client("topics", args.address, lambda client: describe_topics(client, args.topics))
    if args.json:
        print_json([topic_as_json(topic, every_config=args.configs) for topic in topics])
        return 0
    for topic in topics:
        print_topic(topic, every_config=args.configs)
    return 0


COMMAND = Command(
    arguments=DescribeTopics,
    run=run,
    summary="Show the partitions, leaders, offsets and configs of topics.",
    example="rookery topics describe birds --configs",
)
