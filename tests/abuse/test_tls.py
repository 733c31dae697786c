"""Clients that misuse TLS: unfinished handshakes, tiny records, other protocols, alerts."""

from __future__ import annotations

import socket
import ssl
import struct
import subprocess
from contextlib import ExitStack
from shutil import which

import pytest

from rookery.testing.ports import HOST
from rookery.testing.wait import wait_until
from tests.abuse.attack import (
    SIMPLE,
    TIMEOUT_SECONDS,
    Attacker,
    check_simple,
    is_closed_after,
    simple,
)
from tests.abuse.batches import MEBIBYTE
from tests.abuse.brokers import Fortress
from tests.abuse.victims import Victim

HALF_HANDSHAKES = 500
SILENT = 5000
"""Clients that connect and send nothing."""
CONNECTION_BYTES = 64 * 1024
"""The memory of a connection whose handshake is not finished; 50 KB were seen."""
# What one connection may add to the log, with its two ends.
LINE_BYTES = 400
ALERT, HANDSHAKE, APPLICATION_DATA = 0x15, 0x16, 0x17


def record(kind: int, content: bytes, size: int | None = None) -> bytes:
    """Return a record of TLS; `size` is what it says of its length."""
    return struct.pack(">BHH", kind, 0x0303, len(content) if size is None else size) + content


class ByteClient:
    """A client of TLS over memory, so that a test decides how its bytes are sent."""

    def __init__(self, fortress: Fortress) -> None:
        tls = fortress.stranger.tls
        assert tls is not None
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._in, self._out, server_hostname=HOST)
        self.socket = connect(fortress.port)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def hello(self) -> bytes:
        """Return the first bytes of a handshake."""
        with pytest.raises(ssl.SSLWantReadError):
            self._tls.do_handshake()
        return self._out.read()

    def shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._send()
                self._receive()
            else:
                self._send()
                return

    def ask(self, frame: bytes) -> bytes:
        """Send a frame; return the next one."""
        self._tls.write(frame)
        self._send()
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
            try:
                answer += self._tls.read(65_536)
            except ssl.SSLWantReadError:
                self._receive()
        return answer[4:]

    def _send(self) -> None:
        for byte in self._out.read():
            self.socket.sendall(bytes([byte]))

    def _receive(self) -> None:
        data = self.socket.recv(65_536)
        assert data, "the broker has closed the connection"
        self._in.write(data)


def connect(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), TIMEOUT_SECONDS)


def hello_of(fortress: Fortress) -> bytes:
    client = ByteClient(fortress)
    try:
        return client.hello()
    finally:
        client.socket.close()


def end_of(line: socket.socket) -> bytes:
    """Return what the broker says until it closes the connection."""
    said = b""
    try:
        while data := line.recv(65_536):
            said += data
    except ConnectionError:
        pass
    return said


@pytest.mark.parametrize("part", ["nothing", "a byte", "half a hello", "a hello"])
def test_unfinished_handshakes_are_closed_after_a_time(fortress: Fortress, part: str) -> None:
    hello = hello_of(fortress)
    sent = {"nothing": 0, "a byte": 1, "half a hello": len(hello) // 2, "a hello": len(hello)}
    before, sockets = fortress.resident(), fortress.sockets()
    said = fortress.log.stat().st_size
    counts = {"nothing": SILENT, "a hello": HALF_HANDSHAKES}
    count = counts.get(part, HALF_HANDSHAKES // 5)
    with ExitStack() as stack:
        lines = [stack.enter_context(connect(fortress.port)) for _ in range(count)]
        for line in lines:
            line.sendall(hello[: sent[part]])
        assert fortress.resident() - before < max(count * CONNECTION_BYTES, 16 * MEBIBYTE)
        simple(fortress.guest)

        for line in lines:
            end_of(line)
        fortress.wait_for_sockets(sockets)

    wait_until(
        lambda: fortress.words(said).count("a connection could not be established"),
        "a line for each connection",
        accepts=lambda lines: lines >= count,
    )
    assert len(fortress.words(said)) < count * LINE_BYTES + MEBIBYTE // 4


def test_slow_handshakes_do_not_delay_others(fortress: Fortress) -> None:
    """A hundred clients send a byte of their hello at a time; `bystander` sees who notices."""
    hello = hello_of(fortress)
    with ExitStack() as stack:
        lines = [stack.enter_context(connect(fortress.port)) for _ in range(100)]
        for byte in hello[:50]:
            for line in lines:
                line.sendall(bytes([byte]))


def test_abandoned_handshakes_leave_no_sockets(fortress: Fortress) -> None:
    hello, sockets = hello_of(fortress), fortress.sockets()
    said = fortress.log.stat().st_size
    for number in range(HALF_HANDSHAKES):
        with connect(fortress.port) as line:
            line.sendall(hello[: number % len(hello)])
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    fortress.wait_for_sockets(sockets)
    assert len(fortress.words(said)) < HALF_HANDSHAKES * LINE_BYTES + MEBIBYTE // 4


def test_records_in_single_bytes_are_put_together(fortress: Fortress) -> None:
    client = ByteClient(fortress)
    with client.socket:
        client.shake_hands()

        check_simple(client.ask(SIMPLE))


def test_tiny_records_are_put_together(fortress: Fortress) -> None:
    with Attacker(fortress.guest) as line:
        for _ in range(20):
            for byte in SIMPLE:
                line.send(bytes([byte]))
            answer = line.read()
            assert answer is not None
            check_simple(answer)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(SIMPLE, id="Kafka"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", id="HTTP"),
        pytest.param(bytes(4096), id="zeros"),
        pytest.param(b"\xff" * 4096, id="ones"),
        pytest.param(record(APPLICATION_DATA, bytes(1000)), id="data before the handshake"),
        pytest.param(record(HANDSHAKE, b"\1\xff\xff\xff" + bytes(16_000)), id="hello of 16 MiB"),
        pytest.param(record(HANDSHAKE, bytes(16_384), 65_535) + bytes(50_000), id="long record"),
        pytest.param(record(HANDSHAKE, b"") * 10_000, id="empty records"),
        pytest.param(record(ALERT, b"\1\x5a") * 10_000, id="warnings"),
        pytest.param(record(ALERT, b"\2\x28"), id="fatal alert"),
        pytest.param(record(0x18, b"\1\x40\0"), id="heartbeat"),
    ],
)
def test_bytes_that_are_not_a_handshake_close_the_connection(
    fortress: Fortress, data: bytes
) -> None:
    before, said = fortress.resident(), fortress.log.stat().st_size
    with connect(fortress.port) as line:
        try:
            line.sendall(data)
        except ConnectionError:
            return

        assert SIMPLE[4:8] not in end_of(line)
    assert fortress.resident() - before < MEBIBYTE
    assert len(fortress.words(said)) < MEBIBYTE // 4


def test_hello_to_a_plaintext_port_closes_the_connection(
    victim: Victim, fortress: Fortress
) -> None:
    assert is_closed_after(victim.port, hello_of(fortress))


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_versions_are_refused(fortress: Fortress, version: ssl.TLSVersion) -> None:
    old = ssl.create_default_context(cafile=str(fortress.authority))
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, version
    with connect(fortress.port) as line, pytest.raises((ssl.SSLError, ConnectionError)):
        old.wrap_socket(line, server_hostname=HOST)


# A line with `R` renegotiates, one with `K` or `k` updates keys.
@pytest.mark.parametrize(
    ("version", "command", "action"),
    [
        ("-tls1_2", b"R\n", b"RENEGOTIATING"),
        ("-tls1_3", b"K\n", b"KEYUPDATE"),
        ("-tls1_3", b"k\n", b"KEYUPDATE"),
    ],
)
def test_renegotiation_and_key_updates_do_not_delay_others(
    fortress: Fortress, version: str, command: bytes, action: bytes
) -> None:
    sockets, before = fortress.sockets(), fortress.resident()
    # Python's ssl cannot renegotiate.
    assert which("openssl") is not None, "there is no openssl; scripts/install-peers installs it"
    words = ["openssl", "s_client", version, "-connect", f"{HOST}:{fortress.port}"]
    for _ in range(10):
        done = subprocess.run(
            words, input=command, capture_output=True, check=False, timeout=TIMEOUT_SECONDS
        )
        assert action in done.stdout + done.stderr

    fortress.wait_for_sockets(sockets)
    assert fortress.resident() - before < 16 * MEBIBYTE
