"""`rookery users add`: adds a SCRAM user, or replaces its password."""

from __future__ import annotations

import getpass
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import option, part, positional, switch
from rookery.errors import ConfigError

if TYPE_CHECKING:
    from rookery.security.credential import ScramMechanism

_FLAG: Final = "--new-password-file"
_DEFAULT_MECHANISMS: Final = "SCRAM-SHA-256,SCRAM-SHA-512"
"""Both, so that every client can log in."""


@dataclass(frozen=True, kw_only=True)
class AddUser(CommandArguments):
    """The user and its credentials."""

    name: str = positional("NAME", "the name of the user; its principal is User:NAME")
    new_password_file: str | None = option(
        _FLAG,
        metavar="FILE",
        help="a file with the user's password in its first line; - is standard input (default: "
        "prompt)",
    )
    mechanisms: str = option(
        "--mechanisms",
        default=_DEFAULT_MECHANISMS,
        help="the SCRAM mechanisms for the user (default: %(default)s)",
    )
    iterations: int = option(
        "--iterations",
        type=int,
        default=4096,
        help="the number of hash iterations, 4096 to 16384 (default: %(default)s)",
    )
    dry_run: bool = switch("--dry-run", help="show the changes without making them")
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: AddUser) -> int:
    """Create a user, or replace its password."""
    from rookery.cli.session import run_client
    from rookery.client.client import Client

    mechanisms = _read_mechanisms(args.mechanisms)
    if not 4096 <= args.iterations <= 16_384:
        raise ConfigError(f"--iterations: must be 4096 to 16384, not {args.iterations}")
    password = _read_password(_FLAG, args.new_password_file, args.name)

    async def change(client: Client) -> bool:
        exists = bool(await client.users.describe([args.name]))
        if not args.dry_run:
            await client.users.set_password(
                args.name, password, mechanisms=mechanisms, iterations=args.iterations
            )
        return exists

    existed = run_client("users", args.address, change)
    names = [mechanism.text for mechanism in mechanisms]
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


def _read_password(flag: str, file: str | None, owner: str) -> str:
    """Return a new password: from a prompt, a file or standard input, never from an argument.

    Every user of a machine can see arguments, and shells keep them in histories.

    Args:
        flag: the name of the flag, for errors.
        file: a file with the password in its first line; `-` is standard input; None asks.
        owner: the user whose password it is.

    Raises:
        ConfigError: the file cannot be read, the password is empty, or two entries differ.
    """
    password = _ask(owner) if file is None else _first_line(flag, file)
    if not password:
        raise ConfigError(f"{flag}: the password of {owner!r} is empty; a user needs one")
    return password


def _ask(owner: str) -> str:
    password = getpass.getpass(f"New password of {owner}: ")
    if password != getpass.getpass("The same again: "):
        raise ConfigError("the two passwords differ; nothing was changed")
    return password


def _first_line(flag: str, file: str) -> str:
    try:
        if file == "-":
            with open(sys.stdin.fileno(), encoding="utf-8", closefd=False) as stdin:
                text = stdin.readline()
        else:
            text = Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{flag}: {error}") from error
    lines = text.splitlines()
    return lines[0] if lines else ""


def _read_mechanisms(text: str) -> list[ScramMechanism]:
    """Read names with commas between.

    Raises:
        ConfigError: there is none, or one is unknown.
    """
    from rookery.security.credential import SCRAM_MECHANISMS

    names = [name.strip().upper() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in SCRAM_MECHANISMS]
    if unknown or not names:
        raise ConfigError(f"--mechanisms: {text!r} must name some of {', '.join(SCRAM_MECHANISMS)}")
    return [SCRAM_MECHANISMS[name] for name in dict.fromkeys(names)]


COMMAND = Command(
    arguments=AddUser,
    run=run,
    summary="Add a user or replace its password.",
    example="rookery users add alice --new-password-file alice.txt --bootstrap kafka-1:9092",
)
