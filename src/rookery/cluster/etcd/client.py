"""Calls to any etcd member that responds.

One member is used while it responds; after a failure the client switches to the next one. Every
call that the log makes is safe to repeat (`appender.py` explains why an append is). A call whose
response is lost is therefore repeated on another member, and `Answer.tries` reports it.
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

# A stopped or partitioned member gives no response. The other members need about a second to elect
# a new leader, so a shorter timeout would be too short.
_TRY_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.1
_MAX_ANSWER_BYTES: Final = 64 << 20
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _MAX_ANSWER_BYTES),
    ("grpc.max_send_message_length", -1),
    # The client itself fails over between members, because it must count the tries.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Handles in one process do not share connections, and no connection uses a proxy.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


class EtcdAnswer(NamedTuple):
    """A member's response, and the number of tries it took."""

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
        """Make a call until a member responds.

        Raises:
            Unavailable: no member responded in time, or etcd rejects the call; earlier tries may
                have taken effect.
            HistoryCompacted: the history that the call needs was compacted.
            Corrupt: etcd reports that its own data is corrupt.
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
        """Yield the messages of a watch, until the member fails or this client switches members.

        Raises:
            Unavailable: etcd rejects the watch.
        """
        at = self._at
        begin: _Streaming = self._channels[at].stream_stream(WATCH)
        stream = begin(metadata=self._metadata(leader=True))
        self._streams[stream] = at
        try:
            await stream.write(request)
            # grpc marks the end of the stream with an object that is not bytes.
            while isinstance(data := await stream.read(), bytes):
                yield data
        except grpc.aio.AioRpcError as error:
            self._check_passing(error)
            self._leave(at)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            # If this task was not cancelled, then `_leave` cancelled the stream.
            if task is None or task.cancelling():
                raise
        finally:
            self._streams.pop(stream, None)
            stream.cancel()

    async def close(self) -> None:
        """Close all connections and the calls in progress on them."""
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
        # With this option, a member that is partitioned from the others ends the stream instead of
        # going silent.
        return [*metadata, ("hasleader", "true")] if leader else metadata

    def _check_passing(self, error: grpc.aio.AioRpcError) -> None:
        """Raise, unless a retry may help."""
        refused = refusal(self._address, error)
        if isinstance(refused, StaleToken):
            self._token = ""
        elif refused is not None:
            raise refused from error

    def _leave(self, at: int) -> None:
        """Switch to the next member, also for watches, unless another call has already done so."""
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
            "check that a majority of its members runs"
        )


def _channel(address: EtcdAddress, endpoint: str) -> grpc.aio.Channel:
    if not address.tls:
        return grpc.aio.insecure_channel(endpoint, options=_OPTIONS)
    credentials = grpc.ssl_channel_credentials(address.ca, address.key, address.cert)
    return grpc.aio.secure_channel(endpoint, credentials, options=_OPTIONS)
