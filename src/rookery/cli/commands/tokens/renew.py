"""`rookery tokens renew`: extends the life of a delegation token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import option, part, positional
from rookery.cli.options.tokens import find_token, format_time
from rookery.cli.options.values import seconds

if TYPE_CHECKING:
    from rookery.client.client import Client


@dataclass(frozen=True, kw_only=True)
class RenewToken(CommandArguments):
    """The token to renew."""

    token_id: str = positional("TOKEN", "the id of the token")
    period: float | None = option(
        "--for",
        type=seconds,
        metavar="SECONDS",
        help="the time from now until the token expires (default: the broker's default)",
    )
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: RenewToken) -> int:
    """Renew a token; its owner and its renewers can."""
    from rookery.cli.session import run_client

    period_ms = -1 if args.period is None else round(args.period * 1000)

    async def renew(client: Client) -> int:
        token = await find_token(client, args.token_id)
        return await client.tokens.renew(token.hmac, period_ms)

    expires_ms = run_client("tokens", args.address, renew)
    if args.json:
        print_json({"token_id": args.token_id, "expires_ms": expires_ms})
    else:
        print(f"{args.token_id}: expires {format_time(expires_ms)}")
    return 0


COMMAND = Command(
    arguments=RenewToken,
    run=run,
    summary="Extend the lifetime of a delegation token.",
    example="rookery tokens renew wZvcfZnDStaMl3nc_ycGwQ --for 3600",
)
