"""The tidy loop waits for connections whose client has closed them without waiting."""

from __future__ import annotations

import asyncio
import socket
import threading

from tests.tidyloop import run_tidily

SIZE = 16 * 1024 * 1024
"""More than the buffers of two sockets hold, so that closing takes until the peer has read."""


def test_loop_ends_after_its_connections_have_closed() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    is_over = threading.Event()
    received = 0

    def serve() -> None:
        nonlocal received
        peer, _ = server.accept()
        peer.settimeout(10)  # without it, a socket that is never closed would hang the test
        with peer:
            is_over.wait()
            while data := peer.recv(1 << 20):
                received += len(data)

    async def send_and_leave() -> None:
        _, writer = await asyncio.open_connection(*server.getsockname())
        writer.write(bytes(SIZE))
        writer.close()
        is_over.set()

    with server:
        thread = threading.Thread(target=serve)
        thread.start()
        run_tidily(send_and_leave())
        thread.join()

    assert received == SIZE
