"""From arguments to a client, and a command's life with it."""

from __future__ import annotations

import argparse
import getpass
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from rookery.client.client import Client
from rookery.client.settings import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    ClientSettings,
    ProducerSettings,
    Sasl,
)
from rookery.errors import ConfigError, Unavailable
from rookery.net.loop import run
from rookery.security.tls import ClientTls, KeyPair

T = TypeVar("T")

# Long enough for a full buffer and a slow line, whatever --timeout says.
_DELIVERY_MS: Final = 60_000
ACKS: Final = {"0": ACKS_NONE, "1": ACKS_LEADER, "all": ACKS_ALL}


def run_client(args: argparse.Namespace, work: Callable[[Client], Awaitable[T]]) -> T:
    """Run something with a client for the cluster that the arguments name.

    Raises:
        Unavailable: with what to look at, beside what went wrong.
    """
    settings = client_settings(args)

    async def main() -> T:
        try:
            async with Client(settings) as client:
                return await work(client)
        except BaseExceptionGroup as group:
            raise first_of(group) from group

    try:
        return run(main())
    except Unavailable as error:
        raise Unavailable(
            f"{error}\nIs a broker running at {settings.bootstrap}? `rookery broker` starts one; "
            "--bootstrap names another, --timeout waits longer."
        ) from error


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of those that ended a group of tasks."""
    first = group.exceptions[0]
    return first_of(first) if isinstance(first, BaseExceptionGroup) else first


def client_settings(args: argparse.Namespace) -> ClientSettings:
    """Read how to reach the cluster.

    Raises:
        ConfigError: an argument cannot be used; the text names it.
    """
    timeout_ms = max(1, int(args.timeout * 1000))
    return ClientSettings(
        bootstrap=args.bootstrap,
        client_id=f"rookery-{args.command}",
        tls=tls_of(args),
        sasl=sasl_of(args),
        call_timeout_ms=timeout_ms,
        request_timeout_ms=min(timeout_ms, 30_000),
        connect_timeout_ms=min(timeout_ms, 10_000),
    )


def producer_settings(args: argparse.Namespace) -> ProducerSettings:
    """Read how records are sent."""
    acks = ACKS[args.acks]
    return ProducerSettings(
        acks=acks,
        is_idempotent=False if args.no_idempotence else None,
        compression=args.compression,
        linger_ms=args.linger_ms,
        batch_bytes=args.batch_bytes,
        max_request_bytes=args.max_request_bytes or max(4 * args.batch_bytes, 1 << 20),
        delivery_timeout_ms=max(int(args.timeout * 1000), _DELIVERY_MS),
    )


def tls_of(args: argparse.Namespace) -> ClientTls | None:
    """Read how to speak TLS; None: not at all.

    Raises:
        ConfigError: a file is named that makes no sense without another.
    """
    if not (args.tls or args.ca_file or args.cert_file or args.no_verify):
        return None
    if args.key_file and not args.cert_file:
        raise ConfigError("--key-file: needs --cert-file, the certificate that it belongs to")
    own = KeyPair(args.cert_file, args.key_file) if args.cert_file else None
    verify = not args.no_verify
    return ClientTls(ca_file=args.ca_file, own=own, verify=verify, check_hostname=verify)


def sasl_of(args: argparse.Namespace) -> Sasl | None:
    """Read who we are, and ask for the password if no file is named; None: nobody.

    Raises:
        ConfigError: there is no such file, or nobody whose password it is.
    """
    if args.user is None:
        if args.password_file:
            raise ConfigError("--password-file: needs --user, whose password it is")
        return None
    return Sasl(args.mechanism, args.user, _password(args))


def _password(args: argparse.Namespace) -> str:
    # Never an argument: those are seen by everyone on the machine, and kept in histories.
    if args.password_file is None:
        return getpass.getpass(f"Password of {args.user}: ")
    try:
        lines = Path(args.password_file).read_text("utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"--password-file: {error}") from error
    return lines[0] if lines else ""
