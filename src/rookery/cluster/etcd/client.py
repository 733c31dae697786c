"""Calls to whichever member of etcd answers.

One member is used as long as it answers; after a failure the next one is. Every call that the
log makes may be made twice (see `appender.py` for why an append may), so a call whose answer is
lost is simply made again elsewhere, and the caller is told that it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final, NamedTuple

from rookery.cluster.etcd.address import EtcdAddress
from rookery.cluster.etcd.messages import (
    AUTHENTICATE,
    WATCH,
    authenticate_request,
    read_token,
)
from rookery.cluster.etcd.refusal import StaleToken, refusal
from rookery.cluster.etcd.rpc import grpc
from rookery.errors import Unavailable
from rookery.store.pendingcalls import note

if TYPE_CHECKING:
    # Generic for type checkers only.
    _Unary = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
    _Streaming = grpc.aio.StreamStreamMultiCallable[bytes, bytes]

# A member that is stopped or cut off does not say so; the others need about a second to agree on
# a new leader, so that less would be impatience.
_TRY_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.1
_MAX_ANSWER_BYTES: Final = 64 << 20
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _MAX_ANSWER_BYTES),
    ("grpc.max_send_message_length", -1),
    # Members are tried one after the other by ourselves, with ourselves knowing.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Handles in one process do not share connections, and none goes through a proxy.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


class EtcdAnswer(NamedTuple):
    """What a member answered, and how often the call was made until one did."""

    data: bytes
    tries: int


class EtcdClient:
    """Connections to the members of one etcd."""

    def __init__(self, address: EtcdAddress) -> None:
        self._address = address
        self._channels = [_channel(address, endpoint) for endpoint in address.endpoints]
        self._at = 0
        self._token = ""
        self._streams: dict[grpc.aio.StreamStreamCall[bytes, bytes], int] = {}

    async def call(self, method: str, request: bytes) -> EtcdAnswer:
        """Make a call until a member answers.

        Raises:
            Unavailable: none did in time, or etcd refuses; earlier tries may have had their effect.
            Compacted: the history that the call needs is gone.
            Corrupt: etcd says that it cannot trust its own data.
        """
        now = asyncio.get_running_loop().time
        deadline = now() + self._address.timeout_seconds
        tries = 0
        while True:
            tries += 1
            at = self._at
            patience = min(_TRY_SECONDS, max(deadline - now(), 0.05))
            try:
                return EtcdAnswer(await self._try(at, method, request, patience), tries)
            except grpc.aio.AioRpcError as error:
                self._check_passing(error)
                note(error.details() or error.code().name)
                self._leave(at)
                if now() >= deadline:
                    raise self._silent(error) from error
            if tries % len(self._channels) == 0:
                await asyncio.sleep(_PAUSE_SECONDS)

    async def watch(self, request: bytes) -> AsyncGenerator[bytes, None]:
        """Yield what comes on a watch, until the member goes or this client leaves it.

        Raises:
            Unavailable: etcd refuses.
        """
        at = self._at
        begin: _Streaming = self._channels[at].stream_stream(WATCH)
        stream = begin(metadata=self._metadata(leader=True))
        self._streams[stream] = at
        try:
            await stream.write(request)
            # What ends the stream is not bytes but a mark of grpc's.
            while isinstance(data := await stream.read(), bytes):
                yield data
        except grpc.aio.AioRpcError as error:
            self._check_passing(error)
            self._leave(at)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            # If it is not our task that was cancelled then it is the stream, by `_leave`.
            if task is None or task.cancelling():
                raise
        finally:
            self._streams.pop(stream, None)
            stream.cancel()

    async def close(self) -> None:
        """End all connections and the calls that are under way on them."""
        for channel in self._channels:
            await channel.close()

    async def _try(self, at: int, method: str, request: bytes, patience: float) -> bytes:
        if self._address.user and not self._token:
            await self._authenticate(at, patience)
        call: _Unary = self._channels[at].unary_unary(method)
        return await call(request, timeout=patience, metadata=self._metadata())

    async def _authenticate(self, at: int, patience: float) -> None:
        request = authenticate_request(self._address.user, self._address.password)
        call: _Unary = self._channels[at].unary_unary(AUTHENTICATE)
        self._token = read_token(await call(request, timeout=patience))

    def _metadata(self, *, leader: bool = False) -> list[tuple[str, str]]:
        metadata = [("token", self._token)] if self._token else []
        # A member that is cut off from the others ends the stream instead of saying nothing.
        return [*metadata, ("hasleader", "true")] if leader else metadata

    def _check_passing(self, error: grpc.aio.AioRpcError) -> None:
        """Raise, unless it may help to try again."""
        refused = refusal(self._address, error)
        if isinstance(refused, StaleToken):
            self._token = ""
        elif refused is not None:
            raise refused from error

    def _leave(self, at: int) -> None:
        """Use the next member from now on, for watches too; others may have seen to it already."""
        if at != self._at:
            return
        self._at = (at + 1) % len(self._channels)
        for stream, where in list(self._streams.items()):
            if where == at:
                stream.cancel()

    def _silent(self, error: grpc.aio.AioRpcError) -> Unavailable:
        seconds = f"{self._address.timeout_seconds:g}"
        return Unavailable(
            f"{self._address} has not answered within {seconds} s: {error.details()}; "
            "see that a majority of its members runs"
        )


def _channel(address: EtcdAddress, endpoint: str) -> grpc.aio.Channel:
    if not address.tls:
        return grpc.aio.insecure_channel(endpoint, options=_OPTIONS)
    credentials = grpc.ssl_channel_credentials(address.ca, address.key, address.cert)
    return grpc.aio.secure_channel(endpoint, credentials, options=_OPTIONS)
