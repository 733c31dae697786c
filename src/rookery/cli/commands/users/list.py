"""`rookery users list`: lists SCRAM users and their mechanisms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import part, positional

if TYPE_CHECKING:
    from rookery.client.users import UserDescription


@dataclass(frozen=True, kw_only=True)
class ListUsers(CommandArguments):
    """The users to list."""

    names: tuple[str, ...] = positional("NAME", "the users to list (default: all)", nargs="*")
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: ListUsers) -> int:
    """List users and their mechanisms."""
    from rookery.cli.session import run_client

    users = run_client("users", args.address, lambda client: client.users.describe(args.names))
    if args.json:
        print_json([_as_json(user) for user in users])
    elif users:
        _print_table(users)
    else:
        print("There are no such users; `rookery users add NAME` adds one.")
    return 0


def _as_json(user: UserDescription) -> dict[str, object]:
    return {
        "user": user.name,
        "credentials": [
            {"mechanism": credential.mechanism.text, "iterations": credential.iterations}
            for credential in user.credentials
        ],
    }


def _print_table(users: Sequence[UserDescription]) -> None:
    from rich.markup import escape

    from rookery.cli.output.tables import make_table, open_console

    table = make_table(("user", "mechanism", "iterations"), right=("iterations",))
    table.pad_edge = False
    for user in users:
        for credential in user.credentials:
            table.add_row(escape(user.name), credential.mechanism.text, str(credential.iterations))
    open_console().print(table)


COMMAND = Command(
    arguments=ListUsers,
    run=run,
    summary="List SCRAM users and their mechanisms.",
    example="rookery users list --bootstrap kafka-1:9092",
)
