"""`rookery topics alter`: adds partitions to a topic, and sets or resets its configs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.configs import ConfigArguments
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import option, part, positional, repeated
from rookery.cli.options.values import count
from rookery.errors import ConfigError

if TYPE_CHECKING:
    from rookery.client.client import Client
    from rookery.client.views.topics import TopicOverview


@dataclass(frozen=True, kw_only=True)
class AlterTopic(CommandArguments):
    """The changes to a topic."""

    topic: str = positional("TOPIC", "the name of the topic")
    partitions: int | None = option(
        "-p",
        "--partitions",
        type=count,
        help="the new total number of partitions; it cannot decrease",
    )
    configs: ConfigArguments = part(ConfigArguments)
    delete_config: tuple[str, ...] = repeated(
        "--delete-config", metavar="NAME", help="reset a config to its default; may be repeated"
    )
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: AlterTopic) -> int:
    """Change configs first, then the number of partitions."""
    from rookery.cli.output.topics import print_topic, topic_as_json
    from rookery.cli.session import run_client

    changes: dict[str, str | None] = dict(args.configs.config)
    changes.update(dict.fromkeys(args.delete_config))
    if not changes and args.partitions is None:
        raise ConfigError("nothing to change: give --partitions, --config or --delete-config")
    topic = run_client("topics", args.address, lambda client: _alter(client, args, changes))
    if args.json:
        print_json(topic_as_json(topic, every_config=False))
    else:
        print_topic(topic, every_config=False)
    return 0


async def _alter(client: Client, args: AlterTopic, changes: dict[str, str | None]) -> TopicOverview:
    from rookery.client.configs import ResourceType
    from rookery.client.views.topics import describe_topics

    if changes:
        await client.admin.configs.alter(ResourceType.TOPIC, args.topic, changes)
    if args.partitions is not None:
        await client.admin.create_partitions(args.topic, args.partitions)
    (topic,) = await describe_topics(client, [args.topic])
    return topic


COMMAND = Command(
    arguments=AlterTopic,
    run=run,
    summary="Add partitions to a topic, and set or reset its configs.",
    example="rookery topics alter birds --partitions 8 --delete-config retention.ms",
)
