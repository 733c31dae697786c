"""`rookery certs issue`: issues a certificate for a broker or a user."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.commands.certs.init import DEFAULT_FOLDER
from rookery.cli.options.fields import option, positional, repeated, switch

if TYPE_CHECKING:
    from rookery.security.certificates import PemIdentity


@dataclass(frozen=True, kw_only=True)
class IssueCertificate(CommandArguments):
    """The certificate to issue: for a broker with hosts, or for a client."""

    name: str = positional(
        "NAME", "the name of the file, and of the user if it is a client certificate"
    )
    hosts: tuple[str, ...] = repeated(
        "--host",
        metavar="HOST",
        help="a host name or IP address that clients connect to; may be repeated",
    )
    client: bool = switch(
        "--client", help="issue a client certificate for a user instead of a broker's"
    )
    folder: str = option(
        "--folder",
        default=DEFAULT_FOLDER,
        help="the folder that `certs init` created (default: %(default)s)",
    )


def run(args: IssueCertificate) -> int:
    """Issue a certificate with a new key; a file with that name is replaced at once."""
    path = _issue(args).write(Path(args.folder), args.name)
    if args.json:
        print_json({"identity": str(path), "authority": str(Path(args.folder) / "ca.pem")})
    else:
        print(f"{path}: the private key and its certificate")
    return 0


def _issue(args: IssueCertificate) -> PemIdentity:
    from rookery.clock import SystemClock, SystemRandom
    from rookery.errors import ConfigError
    from rookery.security.certificates import (
        CA_CERTIFICATE,
        CA_IDENTITY,
        CertificateAuthority,
    )

    if f"{args.name}.pem" in {CA_CERTIFICATE, CA_IDENTITY} or "/" in args.name:
        raise ConfigError(f"{args.name!r} cannot be the name of the file; choose another")
    if bool(args.hosts) == args.client:
        raise ConfigError("name the broker's addresses with --host, or give --client")
    now = SystemClock().now_ms()
    authority = CertificateAuthority.load(Path(args.folder), SystemRandom())
    if args.client:
        return authority.issue_client(args.name, now)
    return authority.issue_server(args.hosts, now)


COMMAND = Command(
    arguments=IssueCertificate,
    run=run,
    summary="Issue a certificate for a broker or a user.",
    example="rookery certs issue broker-1 --host kafka-1.example.org --host 10.0.0.5\n"
    "  rookery certs issue alice --client",
)
