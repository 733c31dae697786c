"""`rookery acls add`: adds access rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.acls import OPERATIONS, ResourceOptions, read_operation, rule_as_json
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import option, part, positional, repeated, switch

if TYPE_CHECKING:
    from rookery.client.client import Client
    from rookery.security.acl import AclBinding


@dataclass(frozen=True, kw_only=True)
class AddAcls(CommandArguments):
    """The rules to add: one for each resource and operation."""

    principal: str = positional(
        "PRINCIPAL", "the principal, such as User:alice; User:* matches everyone"
    )
    operations: tuple[str, ...] = repeated(
        "--operation",
        choices=OPERATIONS,
        metavar="OPERATION",
        help=f"the operation: {', '.join(OPERATIONS)}; may be repeated",
    )
    resources: ResourceOptions = part(ResourceOptions)
    prefix: bool = switch("--prefix", help="treat the names as prefixes")
    deny: bool = switch(
        "--deny",
        help="deny the operation; a denial takes precedence over every rule that allows it",
    )
    host: str = option(
        "--host",
        default="*",
        metavar="ADDRESS",
        help="apply the rules only to clients at this IP address (default: all)",
    )
    dry_run: bool = switch("--dry-run", help="show the rules without adding them")
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: AddAcls) -> int:
    """Add rules; those that exist stay as they are."""
    from rookery.cli.session import run_client
    from rookery.errors import ConfigError
    from rookery.security.acl import find_mistake

    rules = _rules(args)
    for rule in rules:
        if mistake := find_mistake(rule):
            raise ConfigError(f"{rule}: {mistake}")

    async def add(client: Client) -> list[AclBinding]:
        known = set(await client.acls.describe())
        if not args.dry_run:
            await client.acls.create(rules)
        return [rule for rule in rules if rule not in known]

    added = run_client("acls", args.address, add)
    if args.json:
        print_json({"added": [rule_as_json(rule) for rule in added], "dry_run": args.dry_run})
        return 0
    for rule in rules:
        verb = "would be added" if args.dry_run else "added"
        print(f"{rule}: {verb if rule in added else 'exists already'}")
    return 0


def _rules(args: AddAcls) -> list[AclBinding]:
    from rookery.errors import ConfigError
    from rookery.model.acl import PatternType
    from rookery.security.acl import AclBinding, PermissionType

    resources = args.resources.list_named()
    if not resources or not args.operations:
        raise ConfigError("name at least one resource, such as --topic, and one --operation")
    pattern_type = PatternType.PREFIXED if args.prefix else PatternType.LITERAL
    permission = PermissionType.DENY if args.deny else PermissionType.ALLOW
    operations = [read_operation(text) for text in dict.fromkeys(args.operations)]
    return [
        AclBinding(kind, pattern_type, name, args.principal, args.host, operation, permission)
        for kind, name in resources
        for operation in operations
    ]


COMMAND = Command(
    arguments=AddAcls,
    run=run,
    summary="Add access rules.",
    example="rookery acls add User:alice --topic birds --group watchers --operation read\n"
    "  rookery acls add User:bob --topic test- --prefix --operation write --deny --dry-run",
)
