"""A relay between Kafka's clients and a broker that records both directions.

A frame is a length of four bytes and then that many bytes. The relay splits with its own few
lines, on purpose not with the code that the recorded frames will be used to test.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

from rookery.testing.ports import HOST

FRAME_LIMIT = 4096
FRAMES_EACH = 3
# More of those whose frames differ in kind: codecs of Produce and Fetch (0, 1), commits and aborts
# of EndTxn and WriteTxnMarkers (26, 27), joining and leaving by ConsumerGroupHeartbeat (68).
FRAMES_OF = {0: 10, 1: 5, 26: 6, 27: 10, 68: 10}

_LENGTH = Struct(">i")
_REQUEST = Struct(">hhi")
_TEXT_LENGTH = Struct(">h")


class Slot(NamedTuple):
    """What frames are gathered by."""

    key: int
    version: int
    side: str


class Recorded(NamedTuple):
    """One frame, without its length, and the client whose request it is or answers."""

    slot: Slot
    client: str
    frame: bytes

    def as_json(self) -> dict[str, Any]:
        """Return it as a line of the file."""
        return {**self.slot._asdict(), "client": self.client, "frame": self.frame.hex()}


class Recorder:
    """Keeps the frames that are short enough, each once."""

    def __init__(self, broker: str) -> None:
        """Begin with nothing.

        Args:
            broker: what to call the broker where it is a client of itself.
        """
        self.client = broker
        """The client at work, to whom all frames are put down that the broker does not send."""
        self._broker = broker
        # By what is said, whatever its correlation id: a thousand heartbeats are one.
        self._frames: dict[Slot, dict[bytes, Recorded]] = {}

    def request(self, frame: bytes) -> Slot:
        """Keep a request; return where its response belongs."""
        key, version, _ = _REQUEST.unpack_from(frame)
        self._keep(Slot(key, version, "request"), frame, frame[8:], _client_id(frame))
        return Slot(key, version, "response")

    def response(self, slot: Slot, frame: bytes, client_id: str) -> None:
        """Keep a response."""
        self._keep(slot, frame, frame[4:], client_id)

    def chosen(self) -> Iterator[Recorded]:
        """Yield a few frames for each slot, and one of each client at least."""
        for slot in sorted(self._frames):
            by_client: dict[str, list[Recorded]] = {}
            for entry in sorted(self._frames[slot].values(), key=lambda entry: -len(entry.frame)):
                by_client.setdefault(entry.client, []).append(entry)
            turns = zip_longest(*map(_varied, by_client.values()))
            ranked = [entry for turn in turns for entry in turn if entry]
            yield from ranked[: max(FRAMES_OF.get(slot.key, FRAMES_EACH), len(by_client))]

    def write(self, path: Path) -> None:
        """Write the chosen frames as JSON, a line for each."""
        lines = ",\n".join(json.dumps(entry.as_json()) for entry in self.chosen())
        path.write_text(f"[\n{lines}\n]\n", "ascii")

    def _keep(self, slot: Slot, frame: bytes, said: bytes, client_id: str) -> None:
        if len(frame) <= FRAME_LIMIT:
            client = self._broker if _is_broker(client_id) else self.client
            self._frames.setdefault(slot, {}).setdefault(said, Recorded(slot, client, frame))


@asynccontextmanager
async def relay(recorder: Recorder, port: int, upstream: int) -> AsyncIterator[None]:
    """Pass on what comes to `port` to `upstream` and back, both on the loopback interface."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            up_reader, up_writer = await asyncio.open_connection(HOST, upstream)
            await _Connection(recorder).run((reader, writer), (up_reader, up_writer))

    server = await asyncio.start_server(serve, HOST, port)
    async with server:
        yield


End = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Connection:
    """One client's connection and the broker's for it."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._asked: dict[int, tuple[Slot, str]] = {}

    async def run(self, client: End, broker: End) -> None:
        pumps = (
            asyncio.create_task(self._requests(client[0], broker[1])),
            asyncio.create_task(self._responses(broker[0], client[1])),
        )
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for _, writer in (client, broker):
                writer.close()
            for ended in await asyncio.gather(*pumps, return_exceptions=True):
                if isinstance(ended, Exception):
                    _expect_end(ended)

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for frame in _frames(reader):
            _, _, correlation_id = _REQUEST.unpack_from(frame)
            # Before it is passed on: the answer may come at once.
            self._asked[correlation_id] = self._recorder.request(frame), _client_id(frame)
            await _pass_on(writer, frame)

    async def _responses(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for frame in _frames(reader):
            (correlation_id,) = _LENGTH.unpack_from(frame)
            slot, client_id = self._asked.pop(correlation_id)
            self._recorder.response(slot, frame, client_id)
            await _pass_on(writer, frame)


def _varied(entries: list[Recorded]) -> Iterator[Recorded]:
    """Yield the longest first, which says most, then the shortest, and so on to the middle."""
    rest = deque(entries)
    while rest:
        yield rest.popleft()
        rest.reverse()


def _expect_end(error: Exception) -> None:
    if not isinstance(error, ConnectionError | asyncio.IncompleteReadError):
        raise error


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        yield await reader.readexactly(length)


async def _pass_on(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(_LENGTH.pack(len(frame)) + frame)
    await writer.drain()


def _client_id(frame: bytes) -> str:
    (length,) = _TEXT_LENGTH.unpack_from(frame, _REQUEST.size)
    start = _REQUEST.size + _TEXT_LENGTH.size
    return frame[start : start + max(length, 0)].decode()


def _is_broker(client_id: str) -> bool:
    """A broker that asks itself, over the network, calls itself by what it does."""
    return client_id.startswith(("broker-", "Persister-client-", "AddPartitionsManager-client-"))
