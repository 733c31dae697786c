"""TCP proxies between clients and brokers, which can be cut, and can lose answers."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from rookery.model.address import Address
from rookery.testing.ports import HOST

_PATIENCE: Final = 120.0
_PART: Final = 1 << 16


class Cable:
    """All connections to one port of a broker."""

    def __init__(self, front: int, back: int, host: str = HOST) -> None:
        """Prepare one; `start` listens.

        Args:
            front: the port for clients.
            back: the port of the broker.
            host: where clients connect to; the broker is at `HOST`.
        """
        self._front = Address(host, front)
        self._back = back
        self._ends: set[asyncio.StreamWriter] = set()
        self._connections = 0
        self._is_deaf = False
        self._is_closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._socket: socket.socket | None = None

    async def start(self) -> None:
        """Take connections."""
        self._is_closed = False
        # asyncio's server loses connections that it accepts while it is closed.
        self._socket = listening = socket.create_server(self._front)
        listening.setblocking(False)
        asyncio.get_running_loop().add_reader(listening, self._take, listening)

    def _take(self, listening: socket.socket) -> None:
        with suppress(BlockingIOError):
            near, _ = listening.accept()
            near.setblocking(False)
            task = asyncio.create_task(self._accept(near))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Take no more connections."""
        self._is_closed = True
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def cut(self) -> int:
        """Cut every connection; return how many there were."""
        for end in self._ends:
            end.transport.abort()
        return self._connections

    def sever(self) -> int:
        """Cut every connection, and refuse new ones; return how many there were."""
        self.close()
        return self.cut()

    def deafen(self) -> None:
        """Pass requests on, and lose the answers."""
        self._is_deaf = True

    def mend(self) -> int:
        """Cut the connections that lost answers, and pass all answers on again."""
        self._is_deaf = False
        return self.cut()

    async def _accept(self, near: socket.socket) -> None:
        # Nothing is cancelled here: a task that has not begun could not close its socket.
        reader, writer = await asyncio.open_connection(sock=near)
        self._ends.add(writer)
        try:
            if not self._is_closed:
                far_reader, far_writer = await asyncio.open_connection(HOST, self._back)
                await self._join((reader, writer), (far_reader, far_writer))
        except OSError:
            pass
        finally:
            self._ends.discard(writer)
            writer.transport.abort()

    async def _join(
        self,
        near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """Pass bytes both ways until one end is closed."""
        ends = (near[1], far[1])
        self._ends.add(far[1])
        self._connections += 1
        try:
            # One may have been cut while the other was being created.
            if not self._is_closed and not near[1].transport.is_closing():
                await asyncio.gather(
                    self._pipe(near[0], far[1], ends, is_answer=False),
                    self._pipe(far[0], near[1], ends, is_answer=True),
                )
        finally:
            self._connections -= 1
            self._ends.discard(far[1])
            far[1].transport.abort()

    async def _pipe(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        ends: tuple[asyncio.StreamWriter, asyncio.StreamWriter],
        *,
        is_answer: bool,
    ) -> None:
        with suppress(OSError):
            while data := await source.read(_PART):
                if not (is_answer and self._is_deaf):
                    target.write(data)
                    await target.drain()
        for end in ends:
            end.transport.abort()


class Cables:
    """Cables in a thread of their own."""

    def __init__(self, cables: Iterable[Cable]) -> None:
        """Prepare; entering a `with` block lets them work."""
        self.all = list(cables)
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cables", daemon=True)
        self._thread.start()
        for cable in self.all:
            asyncio.run_coroutine_threadsafe(cable.start(), self._loop).result(_PATIENCE)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        self._loop.close()

    def cut(self, index: int) -> int:
        """Cut every connection of one cable; return how many there were."""
        return self._do(self.all[index].cut)

    def sever(self, index: int) -> None:
        """Cut every connection of one cable, and refuse new ones."""
        self._do(self.all[index].sever)

    def restore(self, index: int) -> None:
        """End `sever`."""
        asyncio.run_coroutine_threadsafe(self.all[index].start(), self._loop).result(_PATIENCE)

    def deafen(self, index: int) -> None:
        """Let one cable lose answers."""
        self._loop.call_soon_threadsafe(self.all[index].deafen)

    def mend(self, index: int) -> int:
        """Let it work again; return how many connections had to be cut."""
        return self._do(self.all[index].mend)

    async def _close(self) -> None:
        for cable in self.all:
            cable.sever()
        # Connections that end, and those being created; one may create another.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)
            for cable in self.all:
                cable.cut()
        # A transport closes its socket in the turn of the loop after it was ended.
        for _ in range(2):
            await asyncio.sleep(0)

    def _do(self, act: Callable[[], int]) -> int:
        async def run() -> int:
            return act()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(_PATIENCE)
