"""`rookery users add`."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import option, part, positional, switch
from rookery.cli.options.mechanisms import DEFAULT_MECHANISMS, read_mechanisms

_FLAG = "--new-password-file"


@dataclass(frozen=True, kw_only=True)
class AddUser(CommandArguments):
    """The user and its credentials."""

    name: str = positional("NAME", "the user's name; its principal is User:NAME")
    new_password_file: str | None = option(
        _FLAG,
        metavar="FILE",
        help="the user's password, in the first line; - is standard input (default: a prompt)",
    )
    mechanisms: str = option(
        "--mechanisms",
        default=DEFAULT_MECHANISMS,
        help="the mechanisms that it can use (default: %(default)s)",
    )
    iterations: int = option(
        "--iterations",
        type=int,
        default=4096,
        help="how often the password is hashed, 4096 to 16384 (default: %(default)s)",
    )
    dry_run: bool = switch("--dry-run", help="report what would change, and change nothing")
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: AddUser) -> int:
    """Create a user, or replace its password."""
    from rookery.cli.options.password import read_password
    from rookery.cli.session import run_client
    from rookery.client.client import Client
    from rookery.errors import ConfigError

    mechanisms = read_mechanisms(args.mechanisms)
    if not 4096 <= args.iterations <= 16_384:
        raise ConfigError(f"--iterations: must be 4096 to 16384, not {args.iterations}")
    password = read_password(_FLAG, args.new_password_file, args.name)

    async def change(client: Client) -> bool:
        exists = bool(await client.users.describe([args.name]))
        if not args.dry_run:
            await client.users.set_password(
                args.name, password, mechanisms=mechanisms, iterations=args.iterations
            )
        return exists

    existed = run_client("users", args.address, change)
    names = [one.text for one in mechanisms]
    if args.json:
        print_json(
            {"user": args.name, "mechanisms": names, "existed": existed, "dry_run": args.dry_run}
        )
        return 0
    verb = "password replaced" if existed else "added"
    if args.dry_run:
        verb = "password would be replaced" if existed else "would be added"
    print(f"{args.name}: {verb} ({', '.join(names)})")
    return 0


COMMAND = Command(
    arguments=AddUser,
    run=run,
    summary="Add a user, or replace its password.",
    example="rookery users add alice --new-password-file alice.txt --bootstrap kafka-1:9092",
)
