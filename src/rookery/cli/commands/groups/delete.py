"""`rookery groups delete`: deletes groups without members, and their offsets."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.cli.command import Command, CommandArguments
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import part, positional, switch
from rookery.errors import ErrorCode


@dataclass(frozen=True, kw_only=True)
class DeleteGroups(CommandArguments):
    """The groups to delete."""

    groups: tuple[str, ...] = positional("GROUP", "the names of the groups", nargs="+")
    if_exists: bool = switch("--if-exists", help="do not fail if a group does not exist")
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: DeleteGroups) -> int:
    """Delete groups one by one."""
    from rookery.cli.output.deletions import print_deletions
    from rookery.cli.session import delete_each, run_client

    missing = ErrorCode.GROUP_ID_NOT_FOUND if args.if_exists else None
    deleted = run_client(
        "groups",
        args.address,
        lambda client: delete_each(args.groups, client.groups.delete, missing),
    )
    print_deletions(deleted, as_json=args.json)
    return 0


COMMAND = Command(
    arguments=DeleteGroups,
    run=run,
    summary="Delete groups that have no members, including their offsets.",
    example="rookery groups delete watchers --if-exists",
)
