"""`rookery topics delete`: deletes topics with all their records."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.cli.command import Command, CommandArguments
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import part, positional, switch
from rookery.errors import ErrorCode


@dataclass(frozen=True, kw_only=True)
class DeleteTopics(CommandArguments):
    """The topics to delete."""

    topics: tuple[str, ...] = positional("TOPIC", "the names of the topics", nargs="+")
    if_exists: bool = switch("--if-exists", help="do not fail if a topic does not exist")
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: DeleteTopics) -> int:
    """Delete topics one by one."""
    from rookery.cli.output.deletions import print_deletions
    from rookery.cli.session import delete_each, run_client

    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if args.if_exists else None
    deleted = run_client(
        "topics",
        args.address,
        lambda client: delete_each(
            args.topics, lambda name: client.admin.delete_topics([name]), missing
        ),
    )
    print_deletions(deleted, as_json=args.json)
    return 0


COMMAND = Command(
    arguments=DeleteTopics,
    run=run,
    summary="Delete topics and all their records.",
    example="rookery topics delete birds --if-exists",
)
