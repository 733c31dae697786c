"""Listeners: addresses, ports and limits of connections."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import socket
import ssl
from itertools import pairwise
from pathlib import Path
from weakref import WeakSet

import pytest

from rookery.errors import ConfigError
from rookery.net.connection import Connection
from rookery.net.listener import HostLimit, Listener, ListenerSettings
from rookery.testing.certificates import Certificates
from rookery.testing.wait import wait_until_async
from rookery.testing.wire import Peer, add_length
from tests.net.serving import Parking, echo, listening, number_of, request

PATIENCE = 60


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder: Path = tmp_path_factory.mktemp("certificates")
    return Certificates.make(folder, "127.0.0.1", "localhost")


def server_tls(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.server)
    return context


def client_tls(certificates: Certificates) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificates.ca))


async def test_port_zero_reports_the_actual_port() -> None:
    listener = Listener(echo, ListenerSettings(port=0))
    with pytest.raises(ConfigError):
        _ = listener.port
    await listener.start()
    assert listener.port > 0
    peer = await Peer.connect(listener.port)
    assert number_of(await peer.exchange(request(3))) == 3
    assert listener.accepted == 1
    await peer.close()
    await listener.stop()


async def test_all_addresses_of_a_host_name_are_used() -> None:
    listener = Listener(echo, ListenerSettings(host="localhost", port=0))
    await listener.start()
    peer = await Peer.connect(listener.port, host="localhost")
    assert number_of(await peer.exchange(request(3))) == 3
    await peer.close()
    await listener.stop()


async def test_a_port_in_use_is_named() -> None:
    async with listening(echo) as listener:
        second = Listener(echo, ListenerSettings(port=listener.port))
        with pytest.raises(ConfigError, match=f"127.0.0.1:{listener.port}"):
            await second.start()


async def test_two_listeners_can_share_a_port() -> None:
    first = Listener(echo, ListenerSettings(port=0, reuse_port=True))
    await first.start()
    second = Listener(echo, ListenerSettings(port=first.port, reuse_port=True))
    await second.start()
    async with asyncio.timeout(PATIENCE):
        peers = [await Peer.connect(first.port) for _ in range(50)]
        for peer in peers:
            await peer.exchange(request(1))
    assert first.accepted > 0
    assert second.accepted > 0
    for peer in peers:
        await peer.close()
    await first.stop()
    await second.stop()


async def test_connections_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(echo, max_connections=3) as listener, asyncio.timeout(PATIENCE):
        peers = [await Peer.connect(listener.port) for _ in range(3)]
        for peer in peers:
            await peer.exchange(request(1))
        refused = await Peer.connect(listener.port)
        assert await refused.read_to_end() == b""
        assert listener.refused == 1
        assert "3 are open" in caplog.text
        await peers[0].close()
        await wait_until_async(lambda: len(listener.connections) == 2)
        again = await Peer.connect(listener.port)
        assert number_of(await again.exchange(request(2))) == 2
        for peer in (refused, again, *peers[1:]):
            await peer.close()


async def test_connections_of_one_host_are_bounded_over_all_listeners(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hosts = HostLimit(2)
    async with (
        listening(echo, hosts=hosts) as first,
        listening(echo, hosts=hosts) as second,
        asyncio.timeout(PATIENCE),
    ):
        peers = [await Peer.connect(listener.port) for listener in (first, second)]
        for peer in peers:
            await peer.exchange(request(1))
        refused = await Peer.connect(second.port)
        assert await refused.read_to_end() == b""
        assert (first.refused, second.refused) == (0, 1)
        assert "2 from this host are open" in caplog.text
        await peers[0].close()
        await wait_until_async(lambda: not first.connections)
        again = await Peer.connect(second.port)
        assert number_of(await again.exchange(request(2))) == 2
        for peer in (refused, again, peers[1]):
            await peer.close()


async def test_failed_handshake_of_a_host_is_not_counted_any_longer(
    certificates: Certificates,
) -> None:
    async with (
        listening(echo, tls=server_tls(certificates), hosts=HostLimit(1)) as listener,
        asyncio.timeout(PATIENCE),
    ):
        for _ in range(3):
            stranger = await Peer.connect(listener.port)
            stranger.write_frame(request(1))
            await stranger.read_to_end()
            await stranger.close()
            await wait_until_async(lambda: not listener.connections)
        assert listener.refused == 0


async def test_stop_answers_requests_in_flight() -> None:
    parking = Parking()
    listener = Listener(parking, ListenerSettings(port=0))
    await listener.start()
    async with asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port)
        peer.write_frame(request(1))
        await parking.has(1)
        port = listener.port
        stopping = asyncio.ensure_future(listener.stop())
        await wait_until_async(lambda: all(c.is_closing for c in listener.connections))
        with pytest.raises(ConnectionRefusedError):
            await Peer.connect(port)
        assert not stopping.done()
        parking.release(1)
        assert number_of((await peer.read_to_end())[4:]) == 1
        await stopping
        await peer.close()


async def test_stop_waits_no_longer_than_its_grace_period() -> None:
    parking = Parking()
    listener = Listener(parking, ListenerSettings(port=0))
    await listener.start()
    async with asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port)
        peer.write_frame(request(1))
        await parking.has(1)
        await listener.stop(grace_ms=20)
        assert not listener.connections
        await peer.close()


async def test_frames_are_exchanged_over_tls(certificates: Certificates) -> None:
    async with listening(echo, tls=server_tls(certificates)) as listener, asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port, tls=client_tls(certificates))
        for number, size in enumerate((1, 100_000, 5_000_000)):
            frame = await peer.exchange(request(number, bytes(size)))
            assert (number_of(frame), len(frame)) == (number, 4 + size)
        await peer.close()
        await wait_until_async(lambda: not listener.connections)


async def test_tls_end_of_input_with_requests_in_flight_is_handled(
    certificates: Certificates,
) -> None:
    parking = Parking()
    tls = server_tls(certificates)
    async with listening(parking, tls=tls) as listener, asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port, tls=client_tls(certificates))
        peer.write_frame(request(1))
        await parking.has(1)
        await peer.close()
        await wait_until_async(lambda: not listener.connections)
        parking.release(1)


async def test_plaintext_clients_on_a_tls_port_are_refused(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rookery")
    async with listening(echo, tls=server_tls(certificates)) as listener, asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port)
        peer.write_frame(request(1))
        await peer.read_to_end()
        await wait_until_async(lambda: not listener.connections)
        assert "a connection could not be established" in caplog.text
        good = await Peer.connect(listener.port, tls=client_tls(certificates))
        assert number_of(await good.exchange(request(2))) == 2
        await peer.close()
        await good.close()


async def test_unfinished_tls_handshakes_are_counted(certificates: Certificates) -> None:
    tls = server_tls(certificates)
    async with (
        listening(echo, tls=tls, max_connections=5) as listener,
        asyncio.timeout(PATIENCE),
    ):
        silent = [await Peer.connect(listener.port) for _ in range(8)]
        await wait_until_async(lambda: listener.accepted == 8)
        assert listener.refused == 3
        for peer in silent:
            await peer.close()


async def test_unfinished_tls_handshakes_are_disconnected(certificates: Certificates) -> None:
    tls = server_tls(certificates)
    async with (
        listening(echo, tls=tls, tls_handshake_timeout_ms=200) as listener,
        asyncio.timeout(PATIENCE),
    ):
        silent = [await Peer.connect(listener.port) for _ in range(3)]
        await wait_until_async(lambda: listener.accepted == 3)
        for peer in silent:
            await peer.read_to_end()
        await wait_until_async(lambda: not listener.connections)
        for peer in silent:
            await peer.close()


@pytest.mark.parametrize("sent", [b"", b"\x16", b"GET / HTTP/1.1\r\n\r\n"])
async def test_failed_tls_handshakes_leave_nothing_for_the_collector(
    certificates: Certificates, sent: bytes
) -> None:
    """A broker collects cycles rarely, and with each of these it would keep 40 KB."""
    accepted: WeakSet[Connection] = WeakSet()
    gc.collect()
    gc.disable()
    try:
        async with (
            listening(echo, tls=server_tls(certificates), tls_handshake_timeout_ms=200) as listener,
            asyncio.timeout(PATIENCE),
        ):
            for _ in range(5):
                peer = await Peer.connect(listener.port)
                await wait_until_async(lambda: listener.connections)
                accepted.update(listener.connections)
                peer.write(sent)
                await peer.read_to_end()
                await peer.close()
                await wait_until_async(lambda: not listener.connections)
            assert listener.accepted == 5
            await wait_until_async(lambda: len(accepted) == 0)
    finally:
        gc.enable()


async def test_stop_during_a_tls_handshake_completes(certificates: Certificates) -> None:
    settings = ListenerSettings(port=0)
    listener = Listener(echo, settings, tls=server_tls(certificates))
    await listener.start()
    async with asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port)
        await wait_until_async(lambda: listener.connections)
        await listener.stop()
        assert not listener.connections
        await peer.read_to_end()
        await peer.close()


async def test_immediate_client_resets_do_not_affect_the_listener() -> None:
    async with listening(echo) as listener, asyncio.timeout(PATIENCE):
        for _ in range(20):
            sock = socket.create_connection(("127.0.0.1", listener.port))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            sock.close()
        peer = await Peer.connect(listener.port)
        assert number_of(await peer.exchange(request(1))) == 1
        await peer.close()


@pytest.mark.parametrize("turns", range(4))
async def test_stop_completes_when_a_client_has_just_disconnected(turns: int) -> None:
    listener = Listener(echo, ListenerSettings(port=0))
    await listener.start()
    async with asyncio.timeout(PATIENCE):
        sock = socket.create_connection(("127.0.0.1", listener.port))
        for _ in range(turns):
            await asyncio.sleep(0)
        sock.close()
        await listener.stop()
    assert not listener.connections


async def test_accepting_continues_after_file_descriptors_ran_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rookery.net.listener._EXHAUSTED_PAUSE", 0.01)
    async with listening(echo) as listener, asyncio.timeout(PATIENCE):
        sock = socket.socket()
        sock.setblocking(False)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (sock.fileno() + 1, hard))
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", listener.port))
            await wait_until_async(lambda: "cannot accept connections" in caplog.text)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        sock.close()
        peer = await Peer.connect(listener.port)
        assert number_of(await peer.exchange(request(1))) == 1
        await peer.close()


async def test_released_sockets_serve_another_listener_without_a_gap() -> None:
    parking = Parking()
    old = Listener(parking, ListenerSettings(port=0))
    await old.start()
    port = old.port
    first = await Peer.connect(port)
    first.write_frame(request(1))
    await parking.has(1)
    sockets = old.release()
    # between the two: this client waits in the backlog
    second = await Peer.connect(port)
    second.write_frame(request(2))
    new = Listener(echo, ListenerSettings(port=port))
    await new.start(sockets)

    assert number_of(await second.read_frame()) == 2
    parking.release(1)
    assert number_of(await first.read_frame()) == 1
    assert (old.accepted, new.accepted, new.port) == (1, 1, port)
    await old.stop()
    assert number_of(await second.exchange(request(3))) == 3
    await first.close()
    await second.close()
    await new.stop()


async def test_bound_listener_accepts_after_its_start() -> None:
    listener = Listener(echo, ListenerSettings(port=0))
    await listener.bind()
    peer = await Peer.connect(listener.port)
    peer.write_frame(request(1))
    assert listener.accepted == 0
    await listener.start()

    assert number_of(await peer.read_frame()) == 1
    await peer.close()
    await listener.stop()


async def test_tiny_records_are_decrypted_in_small_portions(certificates: Certificates) -> None:
    """Thousands of records with one byte each would otherwise be one turn of the loop."""
    loop, counts = asyncio.get_running_loop(), [0]
    async with listening(echo, tls=server_tls(certificates)) as listener, asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port, tls=client_tls(certificates))
        await peer.exchange(request(0))
        [connection] = listener.connections
        handle: asyncio.Handle

        def note() -> None:
            nonlocal handle
            if connection.bytes_in != counts[-1]:
                counts.append(connection.bytes_in)
            handle = loop.call_soon(note)

        handle = loop.call_soon(note)
        for number in range(1, 2000):
            for byte in add_length(request(number)):
                peer.write(bytes([byte]))
        answers = [await peer.read_frame() for _ in range(1, 2000)]
        handle.cancel()

        assert [number_of(frame) for frame in answers] == [*range(1, 2000)]
        parts = [after - before for before, after in pairwise(counts)]
        # Until the records are recognized, one buffer of encrypted bytes is decrypted at once.
        assert sum(size for size in parts if size > 2 * 512) < 14_000, parts
        await peer.close()
