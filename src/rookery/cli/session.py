"""Runs the work of a command with a client, and names what to check if no broker answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from rookery.cli.options.connection import ClusterOptions
from rookery.client.admin import NewTopic
from rookery.client.client import Client
from rookery.errors import ApiError, ErrorCode, Unavailable
from rookery.net.loop import run_loop

T = TypeVar("T")


def run_client(command: str, address: ClusterOptions, work: Callable[[Client], Awaitable[T]]) -> T:
    """Run some work with a client that is connected to the cluster, and close the client.

    Raises:
        Unavailable: no broker can be reached; the text says what to check.
    """
    settings = address.client_settings(command)

    async def main() -> T:
        try:
            async with Client(settings) as client:
                return await work(client)
        except BaseExceptionGroup as group:
            raise first_of(group) from group

    try:
        return run_loop(main())
    except Unavailable as error:
        raise Unavailable(
            f"{error}\nIs a broker running at {settings.bootstrap}? `rookery broker` starts one; "
            "--bootstrap names another, --timeout waits longer."
        ) from error


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of those that ended a group of tasks."""
    first = group.exceptions[0]
    return first_of(first) if isinstance(first, BaseExceptionGroup) else first


async def is_done(work: Awaitable[object], passed_over: ErrorCode | None) -> bool:
    """Return whether some work succeeded; False if it failed with the code that is passed over."""
    try:
        await work
    except ApiError as error:
        if error.code is passed_over:
            return False
        raise
    return True


async def delete_each(
    names: Iterable[str],
    delete: Callable[[str], Awaitable[object]],
    passed_over: ErrorCode | None,
) -> dict[str, bool]:
    """Delete items one after the other; return for each whether it existed."""
    return {name: await is_done(delete(name), passed_over) for name in dict.fromkeys(names)}


async def ensure_topic(client: Client, name: str, partitions: int) -> None:
    """Create a topic unless it exists."""
    topic = NewTopic(name=name, partitions=partitions)
    await is_done(client.admin.create_topics([topic]), ErrorCode.TOPIC_ALREADY_EXISTS)
