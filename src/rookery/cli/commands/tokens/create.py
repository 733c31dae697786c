"""`rookery tokens create`: creates a delegation token."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import option, part, repeated
from rookery.cli.options.tokens import (
    PRINCIPAL_HELP,
    format_time,
    read_principals,
    token_as_json,
)
from rookery.cli.options.values import seconds

if TYPE_CHECKING:
    from rookery.client.tokens import DelegationToken


@dataclass(frozen=True, kw_only=True)
class CreateToken(CommandArguments):
    """The token to create."""

    owner: str | None = option(
        "--owner",
        metavar="PRINCIPAL",
        help=f"the owner of the token, {PRINCIPAL_HELP} (default: the user that creates it)",
    )
    renewers: tuple[str, ...] = repeated(
        "--renewer",
        metavar="PRINCIPAL",
        help=f"a principal that can renew and expire the token, {PRINCIPAL_HELP}; may be repeated",
    )
    max_lifetime: float | None = option(
        "--max-lifetime",
        type=seconds,
        metavar="SECONDS",
        help="the lifetime that renewals cannot exceed (default: the broker's maximum)",
    )
    hmac_file: str | None = option(
        "--hmac-file",
        metavar="FILE",
        help="write the token's password (its HMAC) to this new file instead of printing it",
    )
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: CreateToken) -> int:
    """Create a token, and print its id and its password."""
    from rookery.cli.session import run_client
    from rookery.errors import ConfigError
    from rookery.security.privatefile import create_private

    [owner] = read_principals("--owner", (args.owner,)) if args.owner else [""]
    renewers = read_principals("--renewer", args.renewers)
    file = Path(args.hmac_file) if args.hmac_file else None
    if file is not None and file.exists():
        raise ConfigError(f"--hmac-file: {file} exists already")
    max_lifetime_ms = -1 if args.max_lifetime is None else round(args.max_lifetime * 1000)
    token = run_client(
        "tokens",
        args.address,
        lambda client: client.tokens.create(
            owner=owner, renewers=renewers, max_lifetime_ms=max_lifetime_ms
        ),
    )
    if file is not None:
        create_private(file, f"{token.password}\n".encode())
    if args.json:
        secret = {} if file is not None else {"hmac": token.password}
        print_json(token_as_json(token) | secret)
    else:
        _print(token, file)
    return 0


def _print(token: DelegationToken, file: Path | None) -> None:
    print(f"token    {token.token_id}")
    print(f"HMAC     {token.password if file is None else f'in {file}'}")
    print(f"owner    {token.owner}")
    print(f"expires  {format_time(token.expires_ms)}, if it is not renewed")
    print(f"ends     {format_time(token.max_ms)}")


COMMAND = Command(
    arguments=CreateToken,
    run=run,
    summary="Create a delegation token, with which jobs can log in as its owner.",
    example="rookery tokens create --renewer User:scheduler --hmac-file token.txt",
)
