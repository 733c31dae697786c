"""`rookery users remove`: removes SCRAM users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import part, positional, switch

if TYPE_CHECKING:
    from rookery.client.client import Client


@dataclass(frozen=True, kw_only=True)
class RemoveUsers(CommandArguments):
    """The users to remove."""

    names: tuple[str, ...] = positional("NAME", "the names of the users", nargs="+")
    if_exists: bool = switch("--if-exists", help="do not fail if a user does not exist")
    dry_run: bool = switch("--dry-run", help="show the changes without making them")
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: RemoveUsers) -> int:
    """Remove all credentials of users; clients that are logged in stay connected."""
    from rookery.cli.session import run_client

    removed = run_client("users", args.address, lambda client: _remove(args, client))
    if args.json:
        print_json({"removed": removed, "dry_run": args.dry_run})
        return 0
    for name in dict.fromkeys(args.names):
        verb = "would be removed" if args.dry_run else "removed"
        print(f"{name}: {verb if name in removed else 'does not exist'}")
    return 0


async def _remove(args: RemoveUsers, client: Client) -> list[str]:
    from rookery.errors import ApiError, ErrorCode

    users = {user.name: user for user in await client.users.describe(args.names)}
    missing = [name for name in args.names if name not in users]
    if missing and not args.if_exists:
        raise ApiError(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"{', '.join(missing)}: no such user; nothing was changed",
        )
    if not args.dry_run:
        for user in users.values():
            await client.users.remove(
                user.name, [credential.mechanism for credential in user.credentials]
            )
    return list(users)


COMMAND = Command(
    arguments=RemoveUsers,
    run=run,
    summary="Remove SCRAM users. They can no longer log in.",
    example="rookery users remove alice --if-exists",
)
