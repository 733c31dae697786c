"""`rookery certs show`: shows names, issuer, expiry and fingerprint of certificates."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.fields import positional

if TYPE_CHECKING:
    from rookery.clock import Time
    from rookery.security.certificates import CertificateDescription


@dataclass(frozen=True, kw_only=True)
class ShowCertificates(CommandArguments):
    """The files to read."""

    files: tuple[str, ...] = positional("PEM", "a file with certificates (PEM)", nargs="+")


def run(args: ShowCertificates) -> int:
    """Describe certificates; the exit code is 1 if one has expired."""
    from rookery.clock import SystemClock
    from rookery.security.certificates import describe_certificates

    now = SystemClock().now_ms()
    described = [
        (path, certificate)
        for path in args.files
        for certificate in describe_certificates(Path(path))
    ]
    if args.json:
        print_json([_as_json(path, certificate, now) for path, certificate in described])
    else:
        print("\n\n".join(_text(path, certificate, now) for path, certificate in described))
    return 1 if any(certificate.expires <= now for _, certificate in described) else 0


def _as_json(path: str, certificate: CertificateDescription, now: Time) -> dict[str, object]:
    return {
        "file": path,
        "subject": certificate.subject,
        "issuer": certificate.issuer,
        "names": list(certificate.names),
        "valid_from": _moment(certificate.valid_from),
        "expires": _moment(certificate.expires),
        "days_left": certificate.days_left(now),
        "fingerprint": certificate.fingerprint,
        "is_authority": certificate.is_authority,
    }


def _text(path: str, certificate: CertificateDescription, now: Time) -> str:
    left = "expired" if certificate.expires <= now else f"in {certificate.days_left(now)} days"
    authority = " (an authority)" if certificate.is_authority else ""
    lines = [
        path,
        f"  subject      {certificate.subject}{authority}",
        f"  issuer       {certificate.issuer}",
        f"  valid from   {_moment(certificate.valid_from)}",
        f"  expires      {_moment(certificate.expires)}, {left}",
        f"  fingerprint  {certificate.fingerprint}",
    ]
    if certificate.names:
        lines.insert(3, f"  hosts        {', '.join(certificate.names)}")
    return "\n".join(lines)


def _moment(time: Time) -> str:
    return f"{datetime.fromtimestamp(time / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


COMMAND = Command(
    arguments=ShowCertificates,
    run=run,
    summary="Show the names, issuer, expiry and fingerprint of certificates.",
    example="rookery certs show certs/broker-1.pem",
)
