"""Our logins against a real Kafka's SASL listeners, over real TLS."""

from __future__ import annotations

import secrets
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import jwt
import pytest

from rookery.clock import SystemClock
from rookery.errors import ApiError, ErrorCode
from rookery.security.sasl import Login, mechanisms, open_client
from rookery.security.tls import ClientTls, KeyPair, client_context
from rookery.testing.kafka import KafkaServer

BEARER = "OAUTHBEARER"
_SASL_HANDSHAKE, _SASL_AUTHENTICATE, _API_VERSIONS = 17, 36, 18


class _Peer:
    """A broker at the other end of a socket, spoken to in Kafka's oldest forms."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link

    def ask(self, api: int, version: int, body: bytes) -> bytes:
        header = struct.pack(">hhih", api, version, 1, -1)
        self._link.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)[4:]

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._link.recv(size - len(data))
            assert part, "the broker closed the connection"
            data += part
        return data

    def authenticate(self, message: bytes) -> bytes:
        answer = self.ask(_SASL_AUTHENTICATE, 0, struct.pack(">i", len(message)) + message)
        code, text_size = struct.unpack_from(">hh", answer)
        if code:
            raise ApiError(ErrorCode(code), answer[4 : 4 + text_size].decode())
        return answer[4 + max(text_size, 0) + 4 :]

    def log_in(self, mechanism: str, username: str, password: str) -> None:
        name = mechanism.encode()
        answer = self.ask(_SASL_HANDSHAKE, 1, struct.pack(">h", len(name)) + name)
        assert answer[:2] == b"\0\0"
        exchange = open_client(mechanism, Login(username, password, secrets.token_hex(18)))
        message = exchange.first()
        while not exchange.is_done:
            message = exchange.respond(self.authenticate(message))

    def is_open_to_us(self) -> bool:
        return self.ask(_API_VERSIONS, 0, b"")[:2] == b"\0\0"


def unsigned_token(name: str) -> str:
    """Return a token without a signature, which a Kafka without further settings accepts."""
    now = SystemClock().now_ms() // 1000
    return jwt.encode({"sub": name, "iat": now, "exp": now + 600}, key="", algorithm="none")


@contextmanager
def _connect(server: KafkaServer, listener: str) -> Iterator[_Peer]:
    host, _, port = server.address(listener).rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as link:
        if not listener.endswith("SSL"):
            yield _Peer(link)
            return
        files = server.certificates
        context = client_context(ClientTls(ca_file=str(files.ca), own=KeyPair(str(files.client))))
        with context.wrap_socket(link, server_hostname=host) as secure:
            yield _Peer(secure)


@pytest.mark.parametrize("listener", ["SASL_SSL", "SASL_PLAINTEXT"])
@pytest.mark.parametrize("mechanism", mechanisms())
def test_kafka_accepts_our_login(kafka_secure: KafkaServer, listener: str, mechanism: str) -> None:
    secret = unsigned_token("alice") if mechanism == BEARER else kafka_secure.users["alice"]
    with _connect(kafka_secure, listener) as peer:
        peer.log_in(mechanism, "alice", secret)

        assert peer.is_open_to_us()


@pytest.mark.parametrize("mechanism", mechanisms())
@pytest.mark.parametrize("username", ["alice", "nobody"])
def test_kafka_refuses_a_wrong_password(
    kafka_secure: KafkaServer, mechanism: str, username: str
) -> None:
    with _connect(kafka_secure, "SASL_SSL") as peer, pytest.raises(ApiError) as caught:
        peer.log_in(mechanism, username, "wrong")

    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_kafka_accepts_tls_without_a_login(kafka_secure: KafkaServer) -> None:
    with _connect(kafka_secure, "SSL") as peer:
        assert peer.is_open_to_us()


def test_authority_of_the_test_kafka_is_not_trusted_by_the_system(
    kafka_secure: KafkaServer,
) -> None:
    host, _, port = kafka_secure.address("SSL").rpartition(":")
    context = client_context(ClientTls())

    with (
        socket.create_connection((host, int(port)), timeout=30) as link,
        pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"),
    ):
        context.wrap_socket(link, server_hostname=host)
