"""TCP proxies between clients and brokers, which can be cut, and can lose answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from rookery.testing.ports import HOST

_PATIENCE: Final = 30.0
_PART: Final = 1 << 16


class Cable:
    """All connections to one port of a broker."""

    def __init__(self, front: int, back: int) -> None:
        self.front = front
        self._back = back
        self._pipes: set[asyncio.Task[None]] = set()
        self._is_deaf = False
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Take connections."""
        self._server = await asyncio.start_server(self._accept, HOST, self.front)

    def close(self) -> None:
        """Take no more connections."""
        if self._server is not None:
            self._server.close()

    def cut(self) -> int:
        """Cut every connection; return how many there were."""
        count = len(self._pipes) // 2
        for pipe in self._pipes:
            pipe.cancel()
        return count

    def deafen(self) -> None:
        """Bring requests on, and lose the answers."""
        self._is_deaf = True

    def mend(self) -> int:
        """Cut what has lost answers, and lose none any more."""
        self._is_deaf = False
        return self.cut()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, self._back)
        except OSError:
            writer.transport.abort()
            return
        ends = (writer, far_writer)
        self._keep(self._pipe(reader, far_writer, ends, is_answer=False))
        self._keep(self._pipe(far_reader, writer, ends, is_answer=True))

    def _keep(self, pipe: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(pipe)
        self._pipes.add(task)
        task.add_done_callback(self._pipes.discard)

    async def _pipe(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        ends: tuple[asyncio.StreamWriter, asyncio.StreamWriter],
        *,
        is_answer: bool,
    ) -> None:
        try:
            with suppress(OSError):
                while data := await source.read(_PART):
                    if not (is_answer and self._is_deaf):
                        target.write(data)
                        await target.drain()
        finally:
            for end in ends:
                end.transport.abort()


class Cables:
    """Cables in a thread of their own."""

    def __init__(self, ports: dict[int, int]) -> None:
        """Prepare; entering a `with` block lets them work.

        Args:
            ports: the port behind each front port.
        """
        self.all = [Cable(front, back) for front, back in ports.items()]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cables", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        for one in self.all:
            asyncio.run_coroutine_threadsafe(one.start(), self._loop).result(_PATIENCE)
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

    def deafen(self, index: int) -> None:
        """Let one cable lose answers."""
        self._loop.call_soon_threadsafe(self.all[index].deafen)

    def mend(self, index: int) -> int:
        """Let it work again; return how many connections had to be cut."""
        return self._do(self.all[index].mend)

    async def _close(self) -> None:
        for one in self.all:
            one.close()
        # Pipes, and connections that are being made; one may bring forth another.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    def _do(self, act: Callable[[], int]) -> int:
        async def run() -> int:
            return act()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(_PATIENCE)
