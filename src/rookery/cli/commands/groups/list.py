"""`rookery groups list`: lists groups, all or those in given states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import part, repeated

if TYPE_CHECKING:
    from rookery.client.groups import GroupListing


@dataclass(frozen=True, kw_only=True)
class ListGroups(CommandArguments):
    """The groups to list."""

    state: tuple[str, ...] = repeated(
        "--state",
        metavar="STATE",
        help="list only groups in this state, such as stable or empty; may be repeated",
    )
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: ListGroups) -> int:
    """List groups."""
    from rookery.cli.session import run_client
    from rookery.client.views.groups import list_groups

    groups = run_client("groups", args.address, lambda client: list_groups(client, args.state))
    if args.json:
        print_json([_as_json(group) for group in groups])
    elif groups:
        _print_table(groups)
    else:
        print("There are no such groups." if args.state else "There are no groups yet.")
    return 0


def _as_json(group: GroupListing) -> dict[str, str]:
    return {
        "group": group.group_id,
        "state": group.state,
        "kind": group.kind,
        "protocol_type": group.protocol_type,
    }


def _print_table(groups: Sequence[GroupListing]) -> None:
    from rich.markup import escape

    from rookery.cli.output.tables import make_table, open_console

    table = make_table(("group", "state", "kind", "protocol"))
    for group in groups:
        table.add_row(
            escape(group.group_id), group.state, group.kind or "-", group.protocol_type or "-"
        )
    open_console().print(table)


COMMAND = Command(
    arguments=ListGroups,
    run=run,
    summary="List consumer groups.",
    example="rookery groups list --state stable --state empty",
)
