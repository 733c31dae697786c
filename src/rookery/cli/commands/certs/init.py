"""`rookery certs init`: creates a certificate authority in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.fields import option, positional

DEFAULT_FOLDER = "certs"


@dataclass(frozen=True, kw_only=True)
class InitCertificates(CommandArguments):
    """The authority to create."""

    folder: str | None = positional(
        "FOLDER", f"the folder for its files (default: {DEFAULT_FOLDER})", nargs="?"
    )
    name: str = option(
        "--name",
        default="Rookery CA",
        help="the name of the certificate authority (default: %(default)s)",
    )


def run(args: InitCertificates) -> int:
    """Create an authority; an existing one is never replaced."""
    from rookery.clock import SystemClock, SystemRandom
    from rookery.security.certificates import CA_IDENTITY, CertificateAuthority

    folder = Path(args.folder or DEFAULT_FOLDER)
    authority = CertificateAuthority.create(args.name, SystemClock().now_ms(), SystemRandom())
    certificate = authority.write(folder)
    key = folder / CA_IDENTITY
    if args.json:
        print_json({"certificate": str(certificate), "key": str(key)})
        return 0
    print(f"{certificate}: the certificate of the authority; give it to clients and brokers")
    print(f"{key}: its key; a reader of this file can become any user and any broker")
    return 0


COMMAND = Command(
    arguments=InitCertificates,
    run=run,
    summary="Create a certificate authority in a folder.",
    example="rookery certs init certs --name 'Bird CA'",
)
