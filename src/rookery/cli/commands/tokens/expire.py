"""`rookery tokens expire`: ends a delegation token now or at a given time."""

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
class ExpireToken(CommandArguments):
    """The token to expire."""

    token_id: str = positional("TOKEN", "the id of the token")
    period: float | None = option(
        "--after",
        type=seconds,
        metavar="SECONDS",
        help="the time until the token expires (default: immediately)",
    )
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: ExpireToken) -> int:
    """Expire a token; clients that are logged in with it stay until their login expires."""
    from rookery.cli.session import run_client

    period_ms = -1 if args.period is None else round(args.period * 1000)

    async def expire(client: Client) -> int | None:
        token = await find_token(client, args.token_id)
        return await client.tokens.expire(token.hmac, period_ms)

    expires_ms = run_client("tokens", args.address, expire)
    if args.json:
        print_json({"token_id": args.token_id, "expires_ms": expires_ms})
    elif expires_ms is None:
        print(f"{args.token_id}: removed")
    else:
        print(f"{args.token_id}: expires {format_time(expires_ms)}")
    return 0


COMMAND = Command(
    arguments=ExpireToken,
    run=run,
    summary="Expire a delegation token now or after a given time.",
    example="rookery tokens expire wZvcfZnDStaMl3nc_ycGwQ",
)
