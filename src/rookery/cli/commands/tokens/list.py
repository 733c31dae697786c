"""`rookery tokens list`: lists delegation tokens with owners, renewers and times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import part, repeated
from rookery.cli.options.tokens import (
    PRINCIPAL_HELP,
    format_time,
    read_principals,
    token_as_json,
)

if TYPE_CHECKING:
    from rookery.client.tokens import DelegationToken


@dataclass(frozen=True, kw_only=True)
class ListTokens(CommandArguments):
    """The tokens to list."""

    owners: tuple[str, ...] = repeated(
        "--owner",
        metavar="PRINCIPAL",
        help=f"list only tokens of this owner, {PRINCIPAL_HELP}; may be repeated",
    )
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: ListTokens) -> int:
    """List the tokens that the user may see, without their passwords."""
    from rookery.cli.session import run_client

    owners = read_principals("--owner", args.owners) or None
    tokens = run_client("tokens", args.address, lambda client: client.tokens.describe(owners))
    if args.json:
        print_json([token_as_json(token) for token in tokens])
    elif tokens:
        _print_table(tokens)
    else:
        print("There are no tokens that you may see; `rookery tokens create` creates one.")
    return 0


def _print_table(tokens: Sequence[DelegationToken]) -> None:
    from rich.markup import escape

    from rookery.cli.output.tables import make_table, open_console

    table = make_table(("token", "owner", "renewers", "expires", "ends"))
    table.pad_edge = False
    for token in tokens:
        table.add_row(
            token.token_id,
            escape(token.owner),
            escape(", ".join(token.renewers)),
            format_time(token.expires_ms),
            format_time(token.max_ms),
        )
    open_console().print(table)


COMMAND = Command(
    arguments=ListTokens,
    run=run,
    summary="List delegation tokens with their owners, renewers and expiry times.",
    example="rookery tokens list --owner User:alice",
)
