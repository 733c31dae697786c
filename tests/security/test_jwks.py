"""Keys of tokens over https: what is fetched, how often, and what a bad server can do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from rookery.errors import ApiError, ConfigError, Unavailable
from rookery.security.bearer import REFRESH_MS, RETRY_MS, BearerSettings, TokenVerifier
from rookery.security.jwks import MAX_JWKS_BYTES, READ_LIMIT_MS, parse_keys, read_jwks
from rookery.testing.clock import ManualClock
from tests.security.keyserver import KeyServer, send, serve_keys
from tests.security.tokens import AUDIENCE, ISSUER, Issuer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def issuer(clock: ManualClock) -> Issuer:
    return Issuer(clock.now_ms())


@pytest.fixture
def server(tmp_path: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> Iterator[KeyServer]:
    with serve_keys(tmp_path) as keys:
        # OpenSSL takes the trusted authorities from there.
        monkeypatch.setenv("SSL_CERT_FILE", str(keys.authority))
        keys.publish(issuer.jwks())
        yield keys


@pytest.fixture
def verifier(server: KeyServer, clock: ManualClock) -> TokenVerifier:
    opened = TokenVerifier(BearerSettings(server.url, ISSUER, AUDIENCE), clock)
    opened.refresh()
    return opened


def refresh_if_due(verifier: TokenVerifier) -> None:
    if verifier.is_due:
        verifier.refresh()


def is_accepted(verifier: TokenVerifier, token: str) -> bool:
    try:
        return verifier.check(token).username == "alice"
    except ApiError:
        return False


def test_keys_are_fetched_over_https(
    verifier: TokenVerifier, server: KeyServer, issuer: Issuer
) -> None:
    assert is_accepted(verifier, issuer.token())
    assert server.requests == 1


def test_server_of_an_unknown_authority_is_refused(
    server: KeyServer, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
        read_jwks(server.url, clock)
    assert server.requests == 0


def test_rotated_key_is_fetched_when_a_token_names_it(
    verifier: TokenVerifier, server: KeyServer, clock: ManualClock
) -> None:
    rotated = Issuer(clock.now_ms(), prefix="second-")
    server.publish(rotated.jwks())
    assert not is_accepted(verifier, rotated.token())
    refresh_if_due(verifier)
    assert server.requests == 1

    clock.advance(RETRY_MS)
    refresh_if_due(verifier)

    assert server.requests == 2
    assert is_accepted(verifier, rotated.token())


def test_tokens_with_random_key_ids_cause_no_storm(
    verifier: TokenVerifier, server: KeyServer, issuer: Issuer, clock: ManualClock
) -> None:
    for number in range(100):
        assert not is_accepted(verifier, issuer.token(key_id=f"key-{number}"))
        refresh_if_due(verifier)
        clock.advance(RETRY_MS // 50)

    # The loop lasts for two intervals.
    assert server.requests <= 3
    assert is_accepted(verifier, issuer.token())


def test_old_keys_stay_valid_while_the_server_is_down(
    verifier: TokenVerifier, server: KeyServer, issuer: Issuer, clock: ManualClock
) -> None:
    server.answer = lambda handler: send(handler, b"", 503)
    clock.advance(REFRESH_MS)
    with pytest.raises(Unavailable, match="503"):
        verifier.refresh()

    assert "503" in verifier.trouble
    assert is_accepted(verifier, issuer.token(exp=2**40))
    assert not verifier.is_due

    server.publish(issuer.jwks())
    clock.advance(RETRY_MS)
    refresh_if_due(verifier)
    assert verifier.trouble == ""


def cut_off(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"{")


@pytest.mark.parametrize(
    "answer",
    [
        lambda handler: send(handler, b" " * (MAX_JWKS_BYTES + 1)),
        lambda handler: handler.wfile.write(b"this is no HTTP\r\n\r\n"),
        lambda handler: None,
        lambda handler: send(handler, b"", 302, Location="http://127.0.0.1:1/keys"),
        lambda handler: send(handler, b"", 302, Location="ftp://127.0.0.1:1/keys"),
        cut_off,
    ],
    ids=["long", "no HTTP", "nothing", "redirect to http", "redirect to ftp", "cut off"],
)
def test_bad_answer_keeps_the_keys(
    verifier: TokenVerifier, server: KeyServer, issuer: Issuer, answer: object
) -> None:
    server.answer = answer  # type: ignore[assignment]  # lambdas in a table have no types
    with pytest.raises(Unavailable, match=server.url):
        verifier.refresh()
    assert is_accepted(verifier, issuer.token())


def test_redirect_to_https_is_followed(
    verifier: TokenVerifier, server: KeyServer, issuer: Issuer
) -> None:
    body = json.dumps(issuer.jwks()).encode()
    target = f"{server.url}/new"

    def answer(handler: BaseHTTPRequestHandler) -> None:
        is_target = handler.path.endswith("/new")
        send(handler, body) if is_target else send(handler, b"", 302, Location=target)

    server.answer = answer
    verifier.refresh()
    assert server.requests == 3


def test_slow_answer_is_given_up(server: KeyServer, clock: ManualClock) -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        for _ in range(10):
            clock.advance(READ_LIMIT_MS // 2)
            handler.wfile.write(b" ")
            handler.wfile.flush()

    server.answer = drip
    with pytest.raises(Unavailable, match="not complete after"):
        read_jwks(server.url, clock)


def test_unusable_keys_are_left_out(issuer: Issuer) -> None:
    rows = [
        "text", None, {}, {"kty": ["RSA"]}, {"kty": "RSA", "n": "AQ", "e": "AQ"},
        {"kty": "EC", "crv": "new-curve", "x": "AQ", "y": "AQ"}, {"kty": "new"},
        *issuer.jwks()["keys"],
    ]  # fmt: skip
    keys = parse_keys(json.dumps({"keys": rows}).encode(), "jwks.json")
    assert [key.key_id for key in keys] == ["ES256", "RS256"]


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"keys": ["text"]}', b"\xff\xfe\0\xd8"])
def test_hostile_set_is_refused(data: bytes) -> None:
    with pytest.raises(ConfigError, match="oauth_jwks"):
        parse_keys(data, "jwks.json")
