"""`rookery certs show`."""

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

    files: tuple[str, ...] = positional("PEM", "files with certificates", nargs="+")


def run(args: ShowCertificates) -> int:
    """Describe certificates; the exit code is 1 if one has expired."""
    from rookery.clock import SystemClock
    from rookery.security.certificates import describe_certificates

    now = SystemClock().now_ms()
    described = [(path, one) for path in args.files for one in describe_certificates(Path(path))]
    if args.json:
        print_json([_as_json(path, one, now) for path, one in described])
    else:
        print("\n\n".join(_text(path, one, now) for path, one in described))
    return 1 if any(one.expires <= now for _, one in described) else 0


def _as_json(path: str, one: CertificateDescription, now: Time) -> dict[str, object]:
    return {
        "file": path,
        "subject": one.subject,
        "issuer": one.issuer,
        "names": list(one.names),
        "valid_from": _moment(one.valid_from),
        "expires": _moment(one.expires),
        "days_left": one.days_left(now),
        "fingerprint": one.fingerprint,
        "is_authority": one.is_authority,
    }


def _text(path: str, one: CertificateDescription, now: Time) -> str:
    left = "expired" if one.expires <= now else f"in {one.days_left(now)} days"
    lines = [
        path,
        f"  subject      {one.subject}{' (an authority)' if one.is_authority else ''}",
        f"  issuer       {one.issuer}",
        f"  valid from   {_moment(one.valid_from)}",
        f"  expires      {_moment(one.expires)}, {left}",
        f"  fingerprint  {one.fingerprint}",
    ]
    if one.names:
        lines.insert(3, f"  hosts        {', '.join(one.names)}")
    return "\n".join(lines)


def _moment(time: Time) -> str:
    return f"{datetime.fromtimestamp(time / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


COMMAND = Command(
    arguments=ShowCertificates,
    run=run,
    summary="Show certificates: names, issuer, expiry and fingerprint.",
    example="rookery certs show certs/broker-1.pem",
)
