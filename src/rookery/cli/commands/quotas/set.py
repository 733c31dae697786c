"""`rookery quotas set`: sets quotas of a user, a client id or an address."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import part, positional, switch
from rookery.cli.options.quotaentity import QuotaEntityOptions
from rookery.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class SetQuotas(CommandArguments):
    """The entity and its limits."""

    limits: tuple[str, ...] = positional(
        "KEY=VALUE", "a limit, such as producer_byte_rate=1048576", nargs="+"
    )
    chosen: QuotaEntityOptions = part(QuotaEntityOptions, "entity")
    dry_run: bool = switch("--dry-run", help="validate the change without making it")
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: SetQuotas) -> int:
    """Set limits; other limits of the entity stay as they are."""
    from rookery.cli.session import run_client

    entity, limits = args.chosen.require(), dict(map(_read_limit, args.limits))
    run_client(
        "quotas",
        args.address,
        lambda client: client.quotas.alter(entity, limits, validate_only=args.dry_run),
    )
    if args.json:
        print_json({"entity": dict(entity.parts()), "limits": limits, "dry_run": args.dry_run})
        return 0
    verb = "would be set" if args.dry_run else "set"
    print(f"{entity}: {verb} ({', '.join(args.limits)})")
    return 0


def _read_limit(text: str) -> tuple[str, float]:
    key, separator, value = text.partition("=")
    try:
        if separator:
            return key, float(value)
    except ValueError:
        pass
    raise ConfigError(f"{text!r} is not KEY=VALUE with a number")


COMMAND = Command(
    arguments=SetQuotas,
    run=run,
    summary="Set client quotas for a user, a client id or an IP address.",
    example="rookery quotas set --for-user alice producer_byte_rate=1048576",
)
