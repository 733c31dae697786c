"""What is asked for by name, such as topics and groups: done one by one, and each is told of."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from rich.console import Console

from rookery.cli.actions.connecting import run_client
from rookery.cli.actions.tables import open_console
from rookery.cli.command import print_json
from rookery.client.client import Client
from rookery.errors import ApiError, ErrorCode

T = TypeVar("T")


def for_each(
    args: argparse.Namespace, names: Sequence[str], work: Callable[[Client, str], Awaitable[T]]
) -> dict[str, T]:
    """Do something for every name, one after the other; what comes of it, by name."""

    async def run(client: Client) -> dict[str, T]:
        return {name: await work(client, name) for name in dict.fromkeys(names)}

    return run_client(args, run)


def show_each(
    args: argparse.Namespace, rows: Sequence[T], show: Callable[[Console, T], None]
) -> int:
    """Print descriptions."""
    if args.json:
        print_json(rows)
    else:
        console = open_console()
        for row in rows:
            show(console, row)
    return 0


def delete_each(
    args: argparse.Namespace,
    names: Sequence[str],
    delete: Callable[[Client, str], Awaitable[object]],
    missing: ErrorCode,
) -> int:
    """Delete what has these names; with --if-exists, a refusal as missing is no error."""
    passed_over = missing if args.if_exists else None
    gone = for_each(args, names, lambda client, name: is_done(delete(client, name), passed_over))
    if args.json:
        print_json({"deleted": [name for name, was_there in gone.items() if was_there]})
        return 0
    for name, was_there in gone.items():
        print(f"{name}: {'deleted' if was_there else 'was not there'}")
    return 0


async def is_done(work: Awaitable[object], passed_over: ErrorCode | None) -> bool:
    """Do something, and tell whether it was done; a refusal with that code is no error."""
    try:
        await work
    except ApiError as error:
        if error.code is passed_over:
            return False
        raise
    return True
