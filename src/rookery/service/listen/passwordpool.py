"""Hashes passwords of logins in threads, for a bounded number of clients that are connected.

A hash takes milliseconds, and anyone can ask for one. A client that has disconnected loses its
turn, so that connections that come and go cannot make the others wait. The server does not read
from a client that waits, so it asks the system whether the client is there.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from rookery.net.connection import Connection

_THREADS: Final = 1
"""Threads that hash passwords. More would compete with the event loop for the processor."""
MAX_WAITING: Final = 1_000
"""Clients that can wait. The last one waits for about three seconds, of the ten for its login."""


class PasswordPool:
    """Runs one hash per client at a time, in the order in which the clients came."""

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        self._max_waiting = max_waiting
        self._threads = ThreadPoolExecutor(_THREADS, "rookery-login")
        self._running = 0
        self._waiting: dict[Connection, asyncio.Future[None]] = {}

    @property
    def is_full(self) -> bool:
        """Whether no more clients can wait."""
        return len(self._waiting) >= self._max_waiting

    async def run(
        self, connection: Connection, function: Callable[[bytes], bytes], message: bytes
    ) -> bytes:
        """Call a function in a thread, when it is the client's turn.

        Raises:
            CancelledError: the client has disconnected before its turn.
        """
        loop = asyncio.get_running_loop()
        if self._running < _THREADS:
            self._running += 1
        else:
            await self._wait_for_turn(connection, loop.create_future())
        try:
            return await loop.run_in_executor(self._threads, function, message)
        finally:
            self._release()

    def drop(self, connection: Connection) -> None:
        """Forget a client that has disconnected."""
        turn = self._waiting.pop(connection, None)
        if turn is not None:
            turn.cancel()

    def close(self) -> None:
        """Stop the threads; calls in progress fail."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _wait_for_turn(self, connection: Connection, turn: asyncio.Future[None]) -> None:
        self._waiting[connection] = turn
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting.pop(connection, None)
            if not turn.cancelled():
                # The turn had come, and is not used.
                self._release()
            raise

    def _release(self) -> None:
        """Give the turn to the next client that is there."""
        while self._waiting:
            first = next(iter(self._waiting))
            turn = self._waiting.pop(first)
            if not _has_hung_up(first):
                turn.set_result(None)
                return
            turn.cancel()
            first.abort()
        self._running -= 1


def _has_hung_up(connection: Connection) -> bool:
    """Whether the client has closed the connection; False where the system cannot tell."""
    sock = connection.transport_info("socket")
    if not hasattr(select, "POLLRDHUP") or not hasattr(sock, "fileno"):
        return False
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLRDHUP)
    return bool(poll.poll(0))
