"""`rookery quotas remove`: removes client quotas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import part, positional, switch
from rookery.cli.options.quotaentity import QuotaEntityOptions

if TYPE_CHECKING:
    from rookery.client.client import Client
    from rookery.security.quota import QuotaEntity


@dataclass(frozen=True, kw_only=True)
class RemoveQuotas(CommandArguments):
    """The entity and the limits to remove."""

    keys: tuple[str, ...] = positional("KEY", "the limits to remove (default: all)", nargs="*")
    chosen: QuotaEntityOptions = part(QuotaEntityOptions, "entity")
    dry_run: bool = switch("--dry-run", help="show the changes without making them")
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: RemoveQuotas) -> int:
    """Remove limits of one entity; a limit that does not exist is not an error."""
    from rookery.cli.session import run_client

    entity = args.chosen.require()
    removed = run_client("quotas", args.address, lambda client: _remove(args, entity, client))
    if args.json:
        print_json({"entity": dict(entity.parts()), "removed": removed, "dry_run": args.dry_run})
        return 0
    verb = "would be removed" if args.dry_run else "removed"
    print(f"{entity}: {verb} ({', '.join(removed)})" if removed else f"{entity}: has no such quota")
    return 0


async def _remove(args: RemoveQuotas, entity: QuotaEntity, client: Client) -> list[str]:
    limits = {
        key
        for quota in await client.quotas.describe()
        if quota.entity == entity
        for key in quota.limits
    }
    removed = sorted(limits & set(args.keys) if args.keys else limits)
    if removed and not args.dry_run:
        await client.quotas.alter(entity, dict.fromkeys(removed))
    return removed


COMMAND = Command(
    arguments=RemoveQuotas,
    run=run,
    summary="Remove client quotas.",
    example="rookery quotas remove --for-user alice producer_byte_rate",
)
