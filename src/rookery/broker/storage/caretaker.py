"""The caretaker process: a replica of its own, and periodic rounds of maintenance.

The `CaretakerKeeper` of a broker starts it. It serves no clients. It reads the log up to its head
once per round, so that a busy cluster costs it little. Its changes are events with conditions, so a
second caretaker does no harm.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from rookery.broker.config import configs
from rookery.broker.config.configs import TopicCache
from rookery.broker.settings import BrokerSettings
from rookery.broker.storage.maintenance import ObjectMaintenance
from rookery.broker.storage.objectlog import open_handles, replica_of
from rookery.clock import SystemClock, SystemRandom, loop_seconds
from rookery.cluster.member import ClusterMember, process_registration
from rookery.cluster.replica import Replica
from rookery.cluster.settings import MemberSettings
from rookery.errors import Error, Unavailable
from rookery.log.lostlog import check_not_lost
from rookery.log.maintain.caretaker import Caretaker
from rookery.log.origin import Handles
from rookery.net.loop import run_loop
from rookery.service import logs
from rookery.service.memory import manage_memory

log = logging.getLogger("rookery.broker.storage.caretaker")  # also when it runs as __main__

T = TypeVar("T")

OK, FAILED = 0, 1
_CHECK_SECONDS = 1.0
_JOIN_MS = 5_000


def main() -> int:
    """Run a caretaker: read the settings from standard input, work until it is closed."""
    line = sys.stdin.buffer.readline()
    if not line:
        return FAILED
    settings = BrokerSettings.from_json(json.loads(line))
    logs.set_up(settings.log_level, role="caretaker")
    try:
        return run_loop(_work(settings))
    except Error as error:
        log.error("the caretaker stops: %s", error)  # noqa: TRY400 (the message is complete)
        return FAILED


async def _work(settings: BrokerSettings) -> int:
    messages = BrokerMessages()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), messages.listen)
    handles = open_handles(settings)
    replica = replica_of(handles, SystemClock())
    try:
        async with manage_memory():
            await check_not_lost(handles.cluster_log, handles.store)
            await replica.open(follow=False)
            await _rounds(settings, handles, replica, messages)
        if replica.failure is not None:
            raise replica.failure
    finally:
        await replica.close()
        await handles.close()
    return OK


async def _rounds(
    settings: BrokerSettings, handles: Handles, replica: Replica, messages: BrokerMessages
) -> None:
    # A caretaker that is expired exits, and the broker starts the next one.
    member = ClusterMember(
        replica,
        SystemClock(),
        process_registration("caretaker", SystemRandom()),
        MemberSettings(beat_ms=settings.beat_interval_ms, retry_ms=_JOIN_MS),
    )
    topic_configs = TopicCache(configs.resolve).of
    upkeep = ObjectMaintenance(handles, settings, replica, SystemClock(), topic_configs)
    try:
        numbers = await _run_unless(messages.stop, member.join_patiently())
        if numbers is None:
            return
        caretaker = upkeep.caretaker(numbers)
        messages.confirm = caretaker.confirm
        while not await _wait_for_round(
            caretaker, messages.stop, settings.upkeep_interval_ms / 1000
        ):
            if not await _round(caretaker, messages.stop) or numbers.is_nearly_spent:
                break  # the next caretaker gets new object ids
            if replica.failure is not None:
                return  # its proposals would not count
        await member.leave()
    finally:
        await member.close()


async def _run_unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the work's result, or cancel it and return None if the caretaker must stop first."""
    working = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


async def _round(caretaker: Caretaker, stop: asyncio.Event) -> bool:
    """Run and report one round, or cancel it and return False if the caretaker must stop first."""
    try:
        done = await _run_unless(stop, caretaker.round())
    except Unavailable as error:
        # Objects of the aborted round are unreferenced and will be swept. The state is unchanged.
        log.warning("a maintenance round was abandoned and is repeated: %s", error)
        await asyncio.sleep(_CHECK_SECONDS)
        return True
    if done is not None:
        _report(done.as_json())
    return done is not None


async def _wait_for_round(caretaker: Caretaker, stop: asyncio.Event, seconds: float) -> bool:
    """Wait until the next round is due; return whether the caretaker must stop.

    The log is checked in between, since a restart must replay all entries that no snapshot covers.
    """
    until = loop_seconds() + seconds
    while not stop.is_set() and not await _is_behind(caretaker):
        left = until - loop_seconds()
        if left <= 0:
            break
        with suppress(TimeoutError):
            async with asyncio.timeout(min(left, _CHECK_SECONDS)):
                await stop.wait()
    return stop.is_set()


async def _is_behind(caretaker: Caretaker) -> bool:
    try:
        return await caretaker.is_behind()
    except Unavailable:
        return False  # the next round reports the reason


class BrokerMessages:
    """The broker's messages on standard input: snapshot numbers, and end of file to stop."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.confirm: Callable[[int], None] = lambda _: None
        """Called with a snapshot number after the broker has read the snapshot back."""
        self._rest = b""

    def listen(self) -> None:
        """Read the available input."""
        stdin = sys.stdin.fileno()
        data = os.read(stdin, 4096)
        if not data:
            asyncio.get_running_loop().remove_reader(stdin)
            self.stop.set()
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self.confirm(int(line))


def _report(report: dict[str, object]) -> None:
    with suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(report) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
