"""The other end of a connection, for tests: a raw client, and a transport that is a list."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import Iterable

from rookery.wire.buffer import Buffer
from rookery.wire.frame import PREFIX_BYTES, FrameSplitter

_LARGEST = 2**31 - 1


def add_length(payload: Buffer) -> bytes:
    """Return a frame as it is sent: its length, then its bytes."""
    return struct.pack(">i", len(payload)) + payload


class Peer:
    """A client on a real socket that sends any bytes it is given, valid or not."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(
        cls, port: int, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> Peer:
        """Connect to a listener."""
        return cls(*await asyncio.open_connection(host, port, ssl=tls))

    def write(self, data: Buffer) -> None:
        """Send bytes, without waiting until the system has taken them."""
        self._writer.write(data)

    def write_frame(self, payload: Buffer) -> None:
        """Send a frame, likewise."""
        self._writer.write(add_length(payload))

    async def drain(self) -> None:
        """Wait until the system has taken nearly all that was written."""
        await self._writer.drain()

    def write_end(self) -> None:
        """Close the sending side only."""
        self._writer.write_eof()

    async def read_frame(self) -> bytes:
        """Return the next frame that comes."""
        prefix = await self._reader.readexactly(PREFIX_BYTES)
        return await self._reader.readexactly(int.from_bytes(prefix, "big"))

    async def exchange(self, payload: Buffer) -> bytes:
        """Send a frame and return the one that comes back."""
        self.write_frame(payload)
        return await self.read_frame()

    async def read_to_end(self) -> bytes:
        """Return all that comes until the other side has closed the connection."""
        try:
            return await self._reader.read()
        except ConnectionError:
            return b""

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await self._writer.wait_closed()


class MemoryTransport(asyncio.Transport):
    """A transport whose far end is a list: deterministic, and without a socket."""

    def __init__(self, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__({"peername": ("memory", 0)})
        self.calls: list[list[bytes]] = []
        """The bytes of each call of `write` or `writelines`."""
        self._is_paused = False
        self.is_aborted = False
        self._protocol = protocol
        self._is_closing = False
        protocol.connection_made(self)

    def receive(self, data: Buffer) -> None:
        """Let the protocol receive bytes, as from a socket."""
        rest = memoryview(data)
        while rest:
            room = memoryview(self._protocol.get_buffer(-1))
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            self._protocol.buffer_updated(count)
            rest = rest[count:]

    def frames(self) -> list[bytes]:
        """Return the frames that were written so far."""
        written = b"".join(part for call in self.calls for part in call)
        return [bytes(frame) for frame in FrameSplitter(_LARGEST, minimum=0).feed(written)]

    def write(self, data: Buffer) -> None:
        """Keep bytes."""
        self.calls.append([bytes(data)])

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Keep bytes."""
        self.calls.append([bytes(part) for part in list_of_data])

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Ignore the limits: tests pause the protocol themselves."""

    def get_write_buffer_size(self) -> int:
        """Return 0: everything is taken at once."""
        return 0

    def pause_reading(self) -> None:
        """Note it."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """Note it."""
        self._is_paused = False

    def is_reading(self) -> bool:
        """Return whether the protocol wants more."""
        return not self._is_paused

    def is_closing(self) -> bool:
        """Return whether `close` or `abort` was called."""
        return self._is_closing

    def close(self) -> None:
        """End the connection in the next turn of the loop."""
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        """Do the same, and note it."""
        self.is_aborted = True
        self.close()
