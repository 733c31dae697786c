"""Wakes waiters when the head moves, by a watch on any member."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Final

from rookery.cluster.etcd.client import EtcdClient
from rookery.cluster.etcd.layout import EtcdKeys, check_head
from rookery.cluster.etcd.messages import (
    RANGE,
    range_request,
    read_range,
    read_watch,
    watch_request,
)
from rookery.errors import Error, Unavailable

_PAUSE_SECONDS: Final = 0.1
# A stopped or partitioned member sends nothing. After this much silence on a watch, a read of the
# head detects that, and makes the client switch members.
_SILENCE_SECONDS: Final = 3.0


class HeadWatch:
    """Tracks the highest head seen, and wakes the waiters for a higher one.

    The watch starts with the first waiter. After a failure it is not resumed but restarted from a
    read of the current head. Intermediate heads do not matter, and compaction cannot break a
    restart.
    """

    def __init__(self, client: EtcdClient, layout: EtcdKeys) -> None:
        self._client = client
        self._layout = layout
        self._waiters: dict[asyncio.Future[int], int] = {}
        self._task: asyncio.Task[None] | None = None
        self.head = 0
        """The highest number known to be in use."""

    async def wait(self, after: int) -> int:
        """Return a head above `after`, as soon as there is one."""
        if self.head > after:
            return self.head
        waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = after
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._follow())
        try:
            return await waiter
        finally:
            self._waiters.pop(waiter, None)

    async def look(self) -> int:
        """Read the head from etcd; it includes every append that returned before."""
        return (await self._look())[0]

    def on_moved(self, head: int) -> None:
        """Wake the waiters for an entry that is now known to exist."""
        if head <= self.head:
            return
        self.head = head
        for waiter, after in self._waiters.items():
            if after < head and not waiter.done():
                waiter.set_result(head)

    async def close(self, error: Exception) -> None:
        """Stop the watch, and fail the waiters with an error."""
        self._fail(error)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _fail(self, error: Exception) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(error)

    async def _follow(self) -> None:
        try:
            while True:
                _, revision = await self._look()
                pulse = asyncio.create_task(self._pulse())
                try:
                    await self._watch(revision)
                finally:
                    pulse.cancel()
                await asyncio.sleep(_PAUSE_SECONDS)
        except Error as error:
            # A waiter must not keep waiting for an entry that may exist; the next waiter restarts
            # the watch.
            self._fail(error)
        except BaseException:
            self._fail(Unavailable("the watch on the cluster log's head has ended"))
            raise

    async def _look(self) -> tuple[int, int]:
        """Return the head and the revision of the read."""
        known = self.head
        answer = await self._client.call(RANGE, range_request(self._layout.head))
        result = read_range(answer.data)
        head = self._layout.read_head(result.pairs[0].value) if result.pairs else 0
        check_head(self._layout.name, head, known)
        self.on_moved(head)
        return head, result.revision

    async def _pulse(self) -> None:
        """Check whether silence is justified; a failing read makes the client end the watch."""
        while True:
            head = self.head
            await asyncio.sleep(_SILENCE_SECONDS)
            if head == self.head:
                try:
                    await self._look()
                except Error as error:
                    self._fail(error)

    async def _watch(self, revision: int) -> None:
        """Follow the head from a revision until the watch ends."""
        request = watch_request(self._layout.head, revision + 1)
        async with aclosing(self._client.watch(request)) as stream:
            async for data in stream:
                watched = read_watch(data)
                for value in watched.values[-1:]:
                    self.on_moved(self._layout.read_head(value))
                if watched.is_canceled:
                    self._check_cancel(watched.reason)
                    return

    def _check_cancel(self, reason: str) -> None:
        if "permission denied" in reason:
            raise Unavailable(
                f"etcd refuses a watch on {self._layout.head!r}: {reason}; grant the user "
                "readwrite on the log's prefix"
            )
