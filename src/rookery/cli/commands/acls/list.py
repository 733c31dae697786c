"""`rookery acls list`: lists access rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.acls import AclFilterOptions, find_filters, rule_as_json
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import part, positional

if TYPE_CHECKING:
    from rookery.client.client import Client
    from rookery.security.acl import AclBinding


@dataclass(frozen=True, kw_only=True)
class ListAcls(CommandArguments):
    """The rules to list: for a name, all rules that cover it, with prefixes and *."""

    principal: str | None = positional(
        "PRINCIPAL", "select rules of this principal only (default: all)", nargs="?"
    )
    rules: AclFilterOptions = part(AclFilterOptions)
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: ListAcls) -> int:
    """List rules."""
    from rookery.cli.session import run_client
    from rookery.model.acl import PatternType

    filters = find_filters(args.rules, args.principal, PatternType.MATCH)

    async def fetch(client: Client) -> list[AclBinding]:
        return sorted({rule for choice in filters for rule in await client.acls.describe(choice)})

    rules = run_client("acls", args.address, fetch)
    if args.json:
        print_json([rule_as_json(rule) for rule in rules])
    elif rules:
        _print_table(rules)
    else:
        print("There are no such rules; `rookery acls add` adds one.")
    return 0


def _print_table(rules: list[AclBinding]) -> None:
    from rich.markup import escape

    from rookery.cli.output.tables import make_table, open_console

    titles = ("resource", "name", "pattern", "principal", "host", "operation", "permission")
    table = make_table(titles)
    table.pad_edge = False
    for rule in rules:
        row = rule_as_json(rule)
        table.add_row(*(escape(row[title]) for title in titles))
    open_console(highlight=False).print(table)


COMMAND = Command(
    arguments=ListAcls,
    run=run,
    summary="List access rules.",
    example="rookery acls list --topic birds",
)
