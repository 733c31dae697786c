"""A listening socket: accepts a limited number of clients, with or without TLS.

It does not use `loop.create_server`, because that neither counts connections in their TLS
handshake nor reports when such a handshake fails.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from rookery.errors import ConfigError
from rookery.model.address import Address, address_name
from rookery.net.answers import AnswerBudget
from rookery.net.connection import Connection
from rookery.net.outbox import Budget
from rookery.net.requestqueue import Handler
from rookery.net.settings import ConnectionSettings
from rookery.wire.frame import Chunks

log = logging.getLogger(__name__)

# Out of file descriptors or memory: the client stays in the backlog for this long.
_EXHAUSTED: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_EXHAUSTED_PAUSE: Final = 0.5
_ACCEPTED_AT_ONCE: Final = 32
# One address of a host name may be unusable on this machine although another one works.
_UNUSABLE: Final = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """The listening address and the connection limits."""

    host: str = "127.0.0.1"
    """Name or address to listen on; all addresses of a name are used."""
    port: int = 9092
    """0 lets the system choose."""
    backlog: int = 1024
    """The size of the system's backlog of connections that are not accepted yet."""
    reuse_port: bool = False
    """Whether several processes may listen on the port, each with a share of the clients."""
    max_connections: int = 10_000
    """Further connections are closed immediately; those in their TLS handshake count too."""
    tls_handshake_timeout_ms: int = 10_000
    """From accepting a connection to the end of its TLS handshake."""
    connection: ConnectionSettings = field(default_factory=ConnectionSettings)


class HostLimit:
    """Bounds the number of connections of each client host, over all listeners that share it."""

    def __init__(self, max_connections: int = 2**31 - 1) -> None:
        self.max_connections = max_connections
        self._open: Counter[str] = Counter()

    def enter(self, host: str) -> bool:
        """Count a new connection; return False, and do not count it, at the limit."""
        if self._open[host] >= self.max_connections:
            return False
        self._open[host] += 1
        return True

    def leave(self, host: str) -> None:
        """Count the end of a connection."""
        self._open[host] -= 1
        if not self._open[host]:
            # Otherwise every address that ever connected would stay in memory.
            del self._open[host]


class Listener:
    """Accepts connections and tracks the open ones."""

    def __init__(
        self,
        handler: Handler[Connection],
        settings: ListenerSettings | None = None,
        *,
        budget: Budget | None = None,
        answers: AnswerBudget | None = None,
        tls: ssl.SSLContext | None = None,
        admit: Callable[[Connection], None] | None = None,
    ) -> None:
        """Prepare the listener; `start` begins to listen.

        Args:
            handler: starts every request of every connection.
            settings: the address and the limits.
            budget: bytes of unanswered requests, if shared with other listeners.
            answers: bytes of unread responses, if shared with other listeners.
            tls: the server-side TLS context; without it the port is plaintext.
            admit: called for every new connection, after its TLS handshake.
        """
        self.connections: set[Connection] = set()
        self.accepted = 0
        self.refused = 0
        self._handler = handler
        self._settings = settings or ListenerSettings()
        self._budget = budget or Budget()
        self._answers = answers or AnswerBudget()
        self.tls = tls
        """The TLS context of the next connections; None for a plaintext port."""
        self._admitting = admit
        self.hosts = HostLimit()
        """The limit of connections from one host; listeners can share it."""
        self._host_of: dict[Connection, str] = {}
        self._chunks = Chunks()
        self._sockets: list[socket.socket] = []
        self._handshakes: dict[Connection, asyncio.Task[None]] = {}
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        if not self._sockets:
            raise ConfigError("the listener has a port only while it is started")
        return int(self._sockets[0].getsockname()[1])

    @property
    def is_bound(self) -> bool:
        """Whether it listens."""
        return bool(self._sockets)

    @property
    def address(self) -> Address:
        """The host of the settings, and the port that is listened on."""
        return Address(self._settings.host, self.port)

    async def start(self, sockets: Sequence[socket.socket] = ()) -> None:
        """Begin to accept, and listen before that unless this listener is bound.

        Args:
            sockets: those that another listener has released, to be used instead of own ones.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        if sockets:
            self._sockets = list(sockets)
        elif not self._sockets:
            await self.bind()
        for sock in self._sockets:
            self._resume(sock)

    async def bind(self) -> None:
        """Listen; clients wait in the system's backlog until `start` accepts them.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        settings = self._settings
        try:
            self._sockets = await self._listen()
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}; "
                "set another host or port, or stop what uses this one"
            ) from error

    def release(self) -> list[socket.socket]:
        """Stop accepting; return the sockets, for another listener of the same address.

        Clients that connect meanwhile wait in the backlog. Open connections stay.
        """
        listening, self._sockets = self._sockets, []
        for sock in listening:
            asyncio.get_running_loop().remove_reader(sock)
        return listening

    async def stop(self, grace_ms: int = 10_000) -> None:
        """Stop accepting, let requests in flight finish, then close all connections."""
        for sock in self.release():
            sock.close()
        handshakes = dict(self._handshakes)
        for connection, task in handshakes.items():
            # Connections without TLS end without cancellation. One that has ended but was not
            # notified yet must not be cancelled: uvloop would then never report the loss of the
            # connection.
            if self.tls is not None and not connection.is_made:
                task.cancel()
        await asyncio.gather(*handshakes.values(), return_exceptions=True)
        for connection in list(self.connections):
            if connection.is_made:
                connection.close()
            else:
                self._on_lost(connection)
        try:
            async with asyncio.timeout(grace_ms / 1000):
                await self._is_empty.wait()
        except TimeoutError:
            for connection in list(self.connections):
                connection.abort()
            await self._is_empty.wait()

    async def _listen(self) -> list[socket.socket]:
        settings, sockets = self._settings, []
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        port, problem = settings.port, OSError(f"{settings.host} has no address")
        try:
            for family, _, _, _, address in dict.fromkeys(addresses):
                try:
                    sock = self._bind(family, (address[0], port, *address[2:]))
                except OSError as error:
                    if error.errno not in _UNUSABLE:
                        raise
                    problem = error
                else:
                    sockets.append(sock)
                    port = sock.getsockname()[1]
        except OSError:
            for sock in sockets:
                sock.close()
            raise
        if not sockets:
            raise problem
        return sockets

    def _bind(self, family: int, address: tuple[object, ...]) -> socket.socket:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)  # noqa: FBT003 (its only form)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self._settings.reuse_port:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(address)
            sock.listen(self._settings.backlog)
        except OSError:
            sock.close()
            raise
        return sock

    def _accept(self, listening: socket.socket) -> None:
        """Accept pending clients, up to a limit that keeps the loop fair."""
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                # Any other error means that the client disconnected before it was accepted.
                if error.errno in _EXHAUSTED:
                    self._pause(listening, error)
                    return
                continue
            sock.setblocking(False)  # noqa: FBT003 (its only form)
            self._admit(sock, address)

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        log.error("cannot accept connections: %s", error, extra={"error": error.errno})
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        loop.call_later(_EXHAUSTED_PAUSE, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _admit(self, sock: socket.socket, address: object) -> None:
        self.accepted += 1
        peer = address_name(address)
        host = peer.rpartition(":")[0]
        if len(self.connections) >= self._settings.max_connections:
            self._refuse(sock, peer, "", self._settings.max_connections)
            return
        if not self.hosts.enter(host):
            self._refuse(sock, peer, " from this host", self.hosts.max_connections)
            return
        connection = Connection(
            self._handler, self._settings.connection, self._budget, self._chunks, self._answers
        )
        connection.when_made = self._admitting
        connection.when_lost(lambda: self._on_lost(connection))
        self.connections.add(connection)
        self._host_of[connection] = host
        self._is_empty.clear()
        task = asyncio.create_task(self._greet(sock, connection, peer))
        self._handshakes[connection] = task
        task.add_done_callback(lambda _: self._handshakes.pop(connection, None))
        # If it is cancelled before its first step, it has not taken ownership of the socket.
        task.add_done_callback(lambda task: sock.close() if task.cancelled() else None)

    def _refuse(self, sock: socket.socket, peer: str, which: str, limit: int) -> None:
        self.refused += 1
        sock.close()
        log.warning(
            "refused a connection: %d%s are open, which is the limit",
            limit,
            which,
            extra={"client": peer},
        )

    async def _greet(self, sock: socket.socket, connection: Connection, peer: str) -> None:
        """Attach a connection to its socket; with TLS, after the handshake."""
        timeout = self._settings.tls_handshake_timeout_ms / 1000 if self.tls else None
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                lambda: connection, sock, ssl=self.tls, ssl_handshake_timeout=timeout
            )
        except OSError as error:
            log.info("a connection could not be established: %s", error, extra={"client": peer})
            if connection in self.connections:
                _release(connection, error)
            self._on_lost(connection)

    def _on_lost(self, connection: Connection) -> None:
        self.connections.discard(connection)
        # A connection can be lost twice: at the end of its handshake, and by itself.
        host = self._host_of.pop(connection, None)
        if host is not None:
            self.hosts.leave(host)
        if not self.connections:
            self._is_empty.set()


def _release(connection: Connection, error: OSError) -> None:
    """Break the cycles of references through a connection that could not be established.

    They keep the buffers of its TLS, 40 KB. Python collects cycles only after many connections.
    """
    # The loop's frames refer to the error, which refers to them.
    traceback.clear_frames(error.__traceback__)
    if not connection.is_made:
        # The loop reports no loss of it.
        connection.connection_lost(error)
