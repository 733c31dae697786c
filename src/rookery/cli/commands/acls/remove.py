"""`rookery acls remove`: removes the access rules that match."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.acls import AclFilterOptions, find_filters, rule_as_json
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import part, positional, switch

if TYPE_CHECKING:
    from rookery.client.client import Client
    from rookery.security.acl import AclBinding


@dataclass(frozen=True, kw_only=True)
class RemoveAcls(CommandArguments):
    """The rules to remove: those that match every flag."""

    principal: str | None = positional(
        "PRINCIPAL", "select rules of this principal only (default: all)", nargs="?"
    )
    rules: AclFilterOptions = part(AclFilterOptions)
    all: bool = switch("--all", help="remove all rules; required if no other option selects rules")
    dry_run: bool = switch("--dry-run", help="show the rules without removing them")
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: RemoveAcls) -> int:
    """Remove rules, and print those that were removed."""
    from rookery.cli.session import run_client
    from rookery.errors import ConfigError
    from rookery.model.acl import PatternType
    from rookery.security.acl import AclFilter

    filters = find_filters(args.rules, args.principal, PatternType.LITERAL)
    if filters == [AclFilter()] and not args.all:
        raise ConfigError("name a principal or a resource, or give --all to remove all rules")

    async def remove(client: Client) -> list[AclBinding]:
        if not args.dry_run:
            return await client.acls.delete(filters)
        chosen = {rule for choice in filters for rule in await client.acls.describe(choice)}
        return sorted(chosen)

    removed = run_client("acls", args.address, remove)
    if args.json:
        print_json({"removed": [rule_as_json(rule) for rule in removed], "dry_run": args.dry_run})
        return 0
    for rule in removed:
        print(f"{rule}: {'would be removed' if args.dry_run else 'removed'}")
    if not removed:
        print("No rule matches.")
    return 0


COMMAND = Command(
    arguments=RemoveAcls,
    run=run,
    summary="Remove access rules.",
    example="rookery acls remove User:alice --topic birds --operation read",
)
