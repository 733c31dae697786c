"""`rookery topics create`: creates topics, and waits until they can be used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.configs import ConfigArguments
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import option, part, positional, switch
from rookery.cli.options.values import count
from rookery.errors import ErrorCode

if TYPE_CHECKING:
    from rookery.client.client import Client


@dataclass(frozen=True, kw_only=True)
class CreateTopics(CommandArguments):
    """The topics to create, all with the same settings."""

    topics: tuple[str, ...] = positional("TOPIC", "the names of the topics", nargs="+")
    partitions: int | None = option(
        "-p", "--partitions", type=count, help="the number of partitions (default: the broker's)"
    )
    replication_factor: int | None = option(
        "-r",
        "--replication-factor",
        type=count,
        help="the replication factor (default: the broker's)",
    )
    configs: ConfigArguments = part(ConfigArguments)
    if_not_exists: bool = switch("--if-not-exists", help="do not fail if a topic exists")
    dry_run: bool = switch("--dry-run", help="validate the request without creating topics")
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: CreateTopics) -> int:
    """Create topics one by one, so that each is reported."""
    from rookery.cli.session import run_client

    async def work(client: Client) -> dict[str, bool]:
        return {name: await _create(client, name, args) for name in dict.fromkeys(args.topics)}

    created = run_client("topics", args.address, work)
    if args.json:
        print_json({"created": [name for name, is_new in created.items() if is_new]})
        return 0
    for name, is_new in created.items():
        verb = "could be created" if args.dry_run else "created" if is_new else "exists already"
        print(f"{name}: {verb}")
    return 0


async def _create(client: Client, name: str, args: CreateTopics) -> bool:
    from rookery.cli.session import is_done
    from rookery.client.admin import NewTopic

    topic = NewTopic(
        name=name,
        partitions=args.partitions or -1,
        replication_factor=args.replication_factor or -1,
        configs=dict(args.configs.config),
    )
    return await is_done(
        client.admin.create_topics([topic], validate_only=args.dry_run),
        ErrorCode.TOPIC_ALREADY_EXISTS if args.if_not_exists else None,
    )


COMMAND = Command(
    arguments=CreateTopics,
    run=run,
    summary="Create topics and wait until they are ready.",
    example="rookery topics create birds --partitions 4 --config retention.ms=3600000",
)
