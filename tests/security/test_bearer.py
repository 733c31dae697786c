"""Tokens that are accepted and tokens that are refused."""

from __future__ import annotations

import base64
import hmac
import json
from pathlib import Path
from typing import Any

import jwt
import pytest

from rookery.errors import ApiError, ConfigError, ErrorCode, Unavailable
from rookery.security.bearer import REFRESH_MS, RETRY_MS, BearerSettings, TokenVerifier
from rookery.testing.clock import ManualClock
from tests.security.tokens import AUDIENCE, ISSUER, Issuer

SKEW = 30


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def issuer(clock: ManualClock) -> Issuer:
    return Issuer(clock.now_ms())


@pytest.fixture
def verifier(tmp_path: Path, issuer: Issuer, clock: ManualClock) -> TokenVerifier:
    path = issuer.write(tmp_path / "jwks.json")
    opened = TokenVerifier(BearerSettings(str(path), ISSUER, AUDIENCE), clock)
    opened.refresh()
    return opened


def refuse(verifier: TokenVerifier, token: str) -> None:
    with pytest.raises(ApiError, match="the token is invalid") as caught:
        verifier.check(token)
    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


def is_due(verifier: TokenVerifier) -> bool:
    """Return the value of now: mypy takes a property for a constant."""
    return verifier.is_due


@pytest.mark.parametrize("algorithm", ["ES256", "RS256"])
def test_signed_token_is_accepted(
    verifier: TokenVerifier, issuer: Issuer, clock: ManualClock, algorithm: str
) -> None:
    expires = clock.now_ms() // 1000 + 60
    accepted = verifier.check(issuer.token(algorithm, exp=expires))
    assert accepted.username == "alice"
    assert accepted.expires_ms == (expires + SKEW) * 1000


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://other.example"}, {"iss": None}, {"aud": "other"}, {"aud": None},
        {"exp": None}, {"exp": 1}, {"exp": "soon"}, {"exp": True}, {"nbf": 2**40},
        {"exp": float("inf")}, {"exp": float("nan")}, {"exp": 10**30}, {"nbf": -(10**400)},
        {"sub": None}, {"sub": ""}, {"sub": "a\nb"}, {"sub": "a\0"}, {"sub": "\ud800"},
    ],
)  # fmt: skip
def test_token_with_wrong_claims_is_refused(
    verifier: TokenVerifier, issuer: Issuer, claims: dict[str, Any]
) -> None:
    refuse(verifier, issuer.token(**claims))


def test_token_expires(verifier: TokenVerifier, issuer: Issuer, clock: ManualClock) -> None:
    token = issuer.token(exp=clock.now_ms() // 1000 + 10)
    clock.advance((10 + SKEW - 1) * 1000)
    assert verifier.check(token).username == "alice"
    clock.advance(1_000)
    refuse(verifier, token)


def test_token_of_another_key_is_refused(verifier: TokenVerifier, clock: ManualClock) -> None:
    refuse(verifier, Issuer(clock.now_ms()).token())


def test_key_of_another_algorithm_is_refused(verifier: TokenVerifier, issuer: Issuer) -> None:
    refuse(verifier, issuer.token("RS256", key_id="ES256"))


def hmac_token(headers: dict[str, str], claims: dict[str, object], secret: bytes) -> str:
    """Sign a token as an attacker would: the library refuses such a secret."""
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")
        for part in (headers, claims)
    ]
    signature = hmac.digest(secret, b".".join(parts), "sha256")
    return b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


def test_unsigned_and_symmetric_tokens_are_refused(
    verifier: TokenVerifier, issuer: Issuer, clock: ManualClock
) -> None:
    claims = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "exp": clock.now_ms() // 1000 + 60}
    headers = {"kid": "ES256"}
    refuse(verifier, jwt.encode(claims, "", "none", headers=headers))
    # The classic confusion: the public key as the secret of an HMAC.
    secret = json.dumps(issuer.jwks()["keys"][0]).encode()
    refuse(verifier, hmac_token({"alg": "HS256", "typ": "JWT", **headers}, claims, secret))


@pytest.mark.parametrize("token", ["", "a", "a.b.c", "e30.e30.e30"])
def test_text_that_is_not_a_token_is_refused(verifier: TokenVerifier, token: str) -> None:
    refuse(verifier, token)


def unsigned_token(header: str, claims: str = "{}") -> str:
    """Return a token of any text, with an unchecked signature."""
    parts = [
        base64.urlsafe_b64encode(part).rstrip(b"=").decode()
        for part in (header.encode(), claims.encode(), bytes(64))
    ]
    return ".".join(parts)


DEEP = "[" * 10_000
"""Nested deeper than Python's parser of JSON goes."""


@pytest.mark.parametrize(
    ("header", "claims"),
    [
        pytest.param(DEEP, "{}", id="deep header"),
        pytest.param('{"alg":"ES256","kid":"ES256","x":' + DEEP, "{}", id="deep field"),
        pytest.param('{"alg":"ES256","kid":"ES256"}', DEEP, id="deep claims"),
        pytest.param('{"alg":["ES256"],"kid":"ES256"}', "{}", id="list of algorithms"),
        pytest.param('{"alg":"ES256","kid":{}}', "{}", id="key id that is not text"),
        pytest.param('{"alg":"ES256","kid":' + "9" * 5000 + "}", "{}", id="long number"),
    ],
)
def test_malformed_json_is_refused(verifier: TokenVerifier, header: str, claims: str) -> None:
    refuse(verifier, unsigned_token(header, claims))


@pytest.mark.parametrize("algorithm", ["RS256", "PS512", "ES512", "EdDSA"])
def test_algorithm_of_another_kind_of_key_is_refused(
    tmp_path: Path, issuer: Issuer, clock: ManualClock, algorithm: str
) -> None:
    """A set need not declare algorithms; then the token names one, and it may not fit the key."""
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps(issuer.jwks(declares=False)))
    verifier = TokenVerifier(BearerSettings(str(path), ISSUER, AUDIENCE), clock)
    verifier.refresh()

    refuse(verifier, unsigned_token(json.dumps({"alg": algorithm, "kid": "ES256"})))


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 10**400, 2**63])
@pytest.mark.parametrize("claim", ["exp", "nbf"])
def test_time_out_of_range_is_refused(
    verifier: TokenVerifier, issuer: Issuer, claim: str, value: float
) -> None:
    claims: dict[str, Any] = {claim: value}
    refuse(verifier, issuer.token(**claims))


def test_refused_token_is_logged_in_a_short_line(
    verifier: TokenVerifier, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    refuse(verifier, unsigned_token(json.dumps({"alg": "ES256", "kid": "k" * 40_000})))

    [record] = caplog.records
    assert record.getMessage().startswith("token refused: 0 of 2 keys match key id 'kkk")
    assert len(record.getMessage()) < 300


def test_token_without_a_key_id_needs_a_single_key(
    tmp_path: Path, issuer: Issuer, clock: ManualClock
) -> None:
    path = issuer.write(tmp_path / "jwks.json")
    verifier = TokenVerifier(BearerSettings(str(path), ISSUER, AUDIENCE), clock)
    verifier.refresh()
    refuse(verifier, issuer.token(key_id=None))
    path.write_text(json.dumps({"keys": issuer.jwks(declares=False)["keys"][:1]}))
    verifier.refresh()
    assert verifier.check(issuer.token(key_id=None)).username == "alice"


def test_another_claim_can_name_the_user(
    tmp_path: Path, issuer: Issuer, clock: ManualClock
) -> None:
    path = issuer.write(tmp_path / "jwks.json")
    verifier = TokenVerifier(BearerSettings(str(path), ISSUER, AUDIENCE, "email"), clock)
    verifier.refresh()
    assert verifier.check(issuer.token(email="alice@example")).username == "alice@example"


def test_unknown_key_makes_a_refresh_due(
    verifier: TokenVerifier, issuer: Issuer, clock: ManualClock
) -> None:
    assert not is_due(verifier)
    refuse(verifier, issuer.token(key_id="new"))
    assert not is_due(verifier)
    clock.advance(RETRY_MS)
    assert is_due(verifier)
    verifier.refresh()
    clock.advance(RETRY_MS)
    assert not is_due(verifier)
    clock.advance(REFRESH_MS)
    assert is_due(verifier)


def test_failed_refresh_keeps_the_keys(
    verifier: TokenVerifier, issuer: Issuer, tmp_path: Path
) -> None:
    (tmp_path / "jwks.json").write_text('{"keys": []}')
    with pytest.raises(ConfigError, match="no public signing key"):
        verifier.refresh()
    (tmp_path / "jwks.json").unlink()
    with pytest.raises(Unavailable, match="oauth_jwks"):
        verifier.refresh()
    assert verifier.check(issuer.token()).username == "alice"


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"keys": 1}', '{"keys": [{"kty": "EC"}]}', '{"keys": "text"}',
        '{"keys": {"a": 1}}', '{"keys": [1, null]}', '{"keys": [{"kty": []}]}', DEEP,
        '{"keys": [{"kty": "RSA", "n": 1, "e": []}]}', '{"keys": [{"kty": "OKP", "crv": {}}]}',
        '{"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]}',
        '{"keys": [{"kty": "RSA", "n": "AA", "e": "AA"}]}',
    ],
)  # fmt: skip
def test_file_without_keys_is_refused(tmp_path: Path, clock: ManualClock, text: str) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="oauth_jwks"):
        TokenVerifier(BearerSettings(str(path), ISSUER, AUDIENCE), clock).refresh()


def test_symmetric_keys_of_a_set_are_ignored(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": [{"kty": "oct", "k": "AAAA", "kid": "a"}]}))
    with pytest.raises(ConfigError, match="no public signing key"):
        TokenVerifier(BearerSettings(str(path), ISSUER, AUDIENCE), clock).refresh()


@pytest.mark.parametrize("missing", ["jwks", "issuer", "audience"])
def test_missing_setting_is_named(missing: str) -> None:
    values = {"jwks": "f", "issuer": "i", "audience": "a"} | {missing: ""}
    with pytest.raises(ConfigError, match=f"oauth_{missing}"):
        BearerSettings(**values)


def test_unencrypted_url_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be a file or an https URL"):
        BearerSettings("http://issuer.example/keys", ISSUER, AUDIENCE)
