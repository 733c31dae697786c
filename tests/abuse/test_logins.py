"""Strangers that attack the login: limits before it, endless attempts, huge names, storms."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count

import pytest

from rookery.client.client import Client
from rookery.security.quota import QuotaEntity
from rookery.testing.ports import HOST
from rookery.testing.wait import wait_until
from tests.abuse.attack import (
    ENDED,
    SASL_AUTHENTICATE,
    SIMPLE,
    TIMEOUT_SECONDS,
    Attacker,
    Door,
    framed,
    handshake,
    header,
    is_closed_after,
    simple,
    token,
)
from tests.abuse.batches import MEBIBYTE
from tests.abuse.brokers import GUEST, PASSWORD, Fortress

LIMIT = 524_288
METADATA = 3
NONE, ILLEGAL_STATE, FAILED = 0, 34, 58
MECHANISMS = (b"PLAIN", b"SCRAM-SHA-256", b"SCRAM-SHA-512", b"OAUTHBEARER")
WRONG = {
    b"PLAIN": b"\0guest\0wrong",
    b"SCRAM-SHA-256": b"c=biws,r=x,p=AAAA",
    b"SCRAM-SHA-512": b"n,,r=x",
    b"OAUTHBEARER": b"n,,\x01auth=Basic x\x01\x01",
}
TIME_IS_OVER = "the handshake was not finished within 10000 ms"
# What one failed login may add to the log.
LINE_BYTES = 600
OTHER_ADDRESS = "127.0.0.2"


def code_of(answer: bytes | None) -> int | None:
    return None if answer is None else int.from_bytes(answer[4:6], "big", signed=True)


# The limits before a login.


@pytest.mark.parametrize("size", [LIMIT + 1, 104_857_600, 2**31 - 1])
def test_long_frame_before_the_login_closes_the_connection(fortress: Fortress, size: int) -> None:
    before = fortress.resident()

    assert is_closed_after(fortress.stranger, struct.pack(">i", size) + bytes(64))

    assert fortress.resident() - before < MEBIBYTE


def test_the_same_frame_after_the_login_is_read(fortress: Fortress) -> None:
    with Attacker(fortress.guest) as line:
        line.send(framed(header(METADATA, 1) + struct.pack(">i", -1) + bytes(LIMIT)))

        assert line.read() is not None


@pytest.mark.parametrize("length", [2**31 - 1, -2, -(2**31), 10**6], ids=lambda it: f"length {it}")
def test_false_length_of_a_login_message_allocates_nothing(fortress: Fortress, length: int) -> None:
    before = fortress.forget_peak()
    request = header(SASL_AUTHENTICATE, 0) + struct.pack(">i", length) + bytes(100)

    assert is_closed_after(fortress.stranger, framed(request))

    assert fortress.peak() - before < 4 * MEBIBYTE


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_long_login_message_is_refused(fortress: Fortress, mechanism: bytes) -> None:
    with Attacker(fortress.stranger) as line:
        assert line.choose(mechanism) == NONE

        assert code_of(line.authenticate(b"n,,n=" + b"a" * (LIMIT - 100))) == FAILED
        assert line.read() is None


def api_versions(line: Attacker) -> bool:
    return line.send(SIMPLE) and line.read() is not None


def silence(line: Attacker) -> bool:
    return line.read() is not None


@pytest.mark.parametrize("act", [api_versions, silence])
def test_client_that_never_logs_in_is_closed(
    fortress: Fortress, act: Callable[[Attacker], bool]
) -> None:
    """Whatever it does meanwhile, its time is over some seconds after it has connected."""
    said = fortress.log.stat().st_size
    with Attacker(fortress.stranger) as line:
        while act(line):
            pass
    wait_until(lambda: TIME_IS_OVER in fortress.words(said), TIME_IS_OVER)


def test_repeated_handshake_closes_the_connection(fortress: Fortress) -> None:
    with Attacker(fortress.stranger) as line:
        assert line.choose(b"PLAIN") == NONE

        assert line.choose(b"PLAIN") == ILLEGAL_STATE
        assert line.read() is None


def test_slow_frame_does_not_prolong_the_time_for_a_login(fortress: Fortress) -> None:
    said = fortress.log.stat().st_size
    with Attacker(fortress.stranger) as line:
        line.send(struct.pack(">i", LIMIT))
        line.socket.settimeout(0.1)
        while line.send(b"\0"):
            try:
                assert not line.socket.recv(1)
            except TimeoutError:
                continue
            except ENDED:
                pass
            break
    wait_until(lambda: TIME_IS_OVER in fortress.words(said), TIME_IS_OVER)


def test_only_one_message_of_many_is_checked(fortress: Fortress) -> None:
    """A client could try a thousand passwords with one packet."""
    fortress.wait_for_audit()
    audited = fortress.audited()
    message = framed(token(b"\0" + GUEST.encode() + b"\0wrong"))
    with Attacker(fortress.stranger) as line:
        line.send(framed(handshake(b"PLAIN")) + message * 1000)

        assert code_of(line.read()) == NONE
        assert code_of(line.read()) == FAILED
        assert line.read() is None
    fortress.wait_for_audit()
    failures = [
        record for record in fortress.records(audited) if record["principal"] == f"User:{GUEST}"
    ]
    assert [failure["reason"] for failure in failures] == ["SASL_AUTHENTICATION_FAILED"]


def test_message_without_a_mechanism_closes_the_connection(fortress: Fortress) -> None:
    with Attacker(fortress.stranger) as line:
        assert code_of(line.authenticate(b"\0guest\0wrong")) == ILLEGAL_STATE
        assert line.read() is None


def test_endless_logins_of_one_user_take_bounded_memory(fortress: Fortress) -> None:
    with Attacker(fortress.guest) as line:
        before = fortress.resident()
        for _ in range(500):
            line.log_in(GUEST, PASSWORD)
        assert fortress.resident() - before < 2 * MEBIBYTE
        line.ask_simple()


# Messages of mechanisms.

LONG = 60_000
SCRAM_FIRST = {
    "long name": b"n,,n=" + b"a" * LONG + b",r=0123456789",
    "name of commas": b"n,,n=" + b"=2C" * (LONG // 3) + b",r=0123456789",
    "long nonce": b"n,,n=guest,r=" + b"r" * LONG,
    "long authorization id": b"n,a=" + b"a" * LONG + b",n=guest,r=0123456789",
    "many extensions": b"n,,n=guest,r=0123456789" + b",x=y" * (LONG // 4),
    "channel binding": b"p=tls-unique,,n=guest,r=0123456789",
    "not UTF-8": b"n,,n=\xff\xfe,r=0123456789",
    "mandatory extension": b"n,,m=x,n=guest,r=0123456789",
    "another user": b"n,a=admin,n=guest,r=0123456789",
    "empty": b"",
}


@pytest.mark.parametrize("name", SCRAM_FIRST)
def test_odd_scram_message_is_refused_or_fails_later(fortress: Fortress, name: str) -> None:
    said = fortress.log.stat().st_size
    with Attacker(fortress.stranger) as line:
        assert line.choose(b"SCRAM-SHA-256") == NONE
        answer = line.authenticate(SCRAM_FIRST[name])
        assert code_of(answer) in {NONE, FAILED}
        if code_of(answer) == NONE:
            # No iteration count, salt or nonce of the client's is taken over.
            assert b",i=4096" in (answer or b"")
            assert code_of(line.authenticate(b"c=biws,r=x,i=1,p=AAAA")) == FAILED
        assert line.read() is None
    assert len(fortress.words(said)) < 2 * MEBIBYTE // 100


DEEP = b"[" * 40_000
TOKENS = {
    "deep header": DEEP,
    "no algorithm": b'{"alg":"none","kid":"ES256"}',
    "symmetric": b'{"alg":"HS256","kid":"ES256"}',
    "algorithm of another key": b'{"alg":"RS256","kid":"ES256"}',
    "long key id": json.dumps({"alg": "ES256", "kid": "k" * 40_000}).encode(),
    "embedded key": b'{"alg":"ES256","jwk":{"kty":"oct","k":"AA"}}',
    "key by URL": b'{"alg":"ES256","jku":"https://127.0.0.1:1/keys","kid":"x"}',
}


@pytest.mark.parametrize("name", TOKENS)
def test_odd_token_is_refused(fortress: Fortress, name: str) -> None:
    said = fortress.log.stat().st_size
    parts = (TOKENS[name], b'{"sub":"admin","exp":99999999999}', bytes(64))
    text = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    with Attacker(fortress.stranger) as line:
        assert line.choose(b"OAUTHBEARER") == NONE
        answer = line.authenticate(b"n,,\x01auth=Bearer " + text + b"\x01\x01")
        assert b'{"status":"invalid_token"}' in (answer or b"")
        assert code_of(line.authenticate(b"\x01")) == FAILED
        assert line.read() is None
    assert len(fortress.words(said)) < 2 * MEBIBYTE // 100


# Storms.


def fail(door: Door, number: int) -> int | None:
    """Fail to log in, in one of the ways."""
    mechanism = MECHANISMS[number % len(MECHANISMS)]
    with Attacker(door) as line:
        assert line.choose(mechanism) == NONE
        return code_of(line.authenticate(WRONG[mechanism]))


def test_storm_of_failed_logins_is_answered_and_recorded(fortress: Fortress) -> None:
    """`bystander` produces meanwhile."""
    fortress.wait_for_audit()
    before, sockets = fortress.resident(), fortress.sockets()
    said, audited, attempts = fortress.log.stat().st_size, fortress.audited(), 400
    with ThreadPoolExecutor(16) as pool:
        codes = list(pool.map(lambda number: fail(fortress.stranger, number), range(attempts)))

    assert set(codes) == {FAILED}
    fortress.wait_for_audit()
    failures = [record for record in fortress.records(audited) if record["decision"] == "denied"]
    # One more is the mark of the test.
    assert len(failures) == attempts + 1
    assert {failure["host"] for failure in failures} == {HOST}
    assert len(fortress.words(said)) < attempts * LINE_BYTES + MEBIBYTE // 4
    assert fortress.resident() - before < 16 * MEBIBYTE
    fortress.wait_for_sockets(sockets)


def test_passwords_of_clients_that_hung_up_delay_no_login(fortress: Fortress) -> None:
    sockets = fortress.sockets()
    for number in range(500):
        line = Attacker(fortress.stranger)
        line.send(framed(handshake(b"PLAIN")) + framed(token(b"\0u%d\0wrong" % number)))
        line.vanish()

    simple(fortress.guest)
    fortress.wait_for_sockets(sockets)


@contextmanager
def limited(fortress: Fortress, address: str, rate: float) -> Iterator[None]:
    """Limit the new connections from an address."""

    async def alter(value: float | None) -> None:
        async with Client(fortress.client()) as client:
            entity = QuotaEntity(ip=address)
            await client.quotas.alter(entity, {"connection_creation_rate": value})

    asyncio.run(alter(rate))
    try:
        yield
    finally:
        asyncio.run(alter(None))


def test_flood_of_connections_from_one_address_is_limited(fortress: Fortress) -> None:
    sockets, said = fortress.sockets(), fortress.log.stat().st_size
    tls, numbers = fortress.stranger.tls, count(1)
    assert tls is not None
    with limited(fortress, OTHER_ADDRESS, 10.0), ExitStack() as stack:
        for _ in range(300):
            source = (OTHER_ADDRESS, 0)
            plain = socket.create_connection((HOST, fortress.port), TIMEOUT_SECONDS, source)
            line = stack.enter_context(tls.wrap_socket(plain, server_hostname=HOST))
            try:
                line.sendall(SIMPLE)
                line.settimeout(0.01)
                if line.recv(1):
                    next(numbers)
            except TimeoutError:
                continue
            except OSError:
                continue
        # Other addresses are not limited.
        simple(fortress.guest)

    # Kafka's meter takes ten seconds of connections at once.
    assert next(numbers) <= 200
    fortress.wait_for_sockets(sockets)
    assert len(fortress.words(said)) < 300 * LINE_BYTES + MEBIBYTE // 4
