"""Checks bearer tokens: JWTs that are signed by one of an issuer's keys (a JWK set).

Only asymmetric algorithms are accepted: with a symmetric one, a server that checks tokens could
also issue them, and a public key could be taken for a shared secret. The keys are in memory, so a
check never waits. `refresh` reads them again, from a file or an https URL.
"""

from __future__ import annotations

import json
import logging
import urllib.request
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from rookery.clock import Clock
from rookery.errors import ConfigError, Unavailable
from rookery.security.sasl import AcceptedToken, refusal

log = logging.getLogger(__name__)

ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
"""The accepted signature algorithms."""
REFRESH_MS: Final = 3_600_000
"""The age at which keys are read again (Kafka's sasl.oauthbearer.jwks.endpoint.refresh.ms)."""
RETRY_MS: Final = 10_000
"""The interval of attempts while keys are missing; a token can name a key that is new."""
MAX_JWKS_BYTES: Final = 1024 * 1024
_TIMEOUT_SECONDS: Final = 10
_SKEW_SECONDS: Final = 30
"""How far the clocks of issuer and server may differ (Kafka's default)."""
_MAX_SECONDS: Final = 2**53
"""Times of tokens are smaller; in milliseconds, a larger one would not fit into an answer."""
_MAX_LOGGED: Final = 200
"""The length of a reason in the log: anyone can send a token, and choose its text."""
_UNREADABLE: Final = (ValueError, TypeError, AttributeError, KeyError, RecursionError)
"""What PyJWT raises, besides its own errors, for a token or a key that it cannot read."""


@dataclass(frozen=True, slots=True)
class BearerSettings:
    """Which tokens are accepted."""

    jwks: str
    """The issuer's keys: a file, or an https URL."""
    issuer: str
    """The issuer that a token must name."""
    audience: str
    """The audience that a token must name."""
    user_claim: str = "sub"
    """The claim that is the name of the user."""

    @property
    def is_remote(self) -> bool:
        """Whether the keys are read over the network."""
        return "://" in self.jwks

    def __post_init__(self) -> None:
        missing = [name for name in ("jwks", "issuer", "audience") if not getattr(self, name)]
        if missing:
            raise ConfigError("must be set for OAUTHBEARER", name=f"oauth_{missing[0]}")
        if self.is_remote and not self.jwks.startswith("https://"):
            raise ConfigError(f"{self.jwks}: must be a file or an https URL", name="oauth_jwks")


class TokenVerifier:
    """Checks tokens against the keys that were read last."""

    def __init__(self, settings: BearerSettings, clock: Clock) -> None:
        """Start without keys; `refresh` reads them.

        Raises:
            ConfigError: PyJWT is not installed.
        """
        self._settings = settings
        self._clock = clock
        self._jwt = _load()
        self._keys: list[_SigningKey] = []
        self._read_ms: int | None = None
        self._tried_ms: int | None = None
        self._is_key_missing = False

    @property
    def is_due(self) -> bool:
        """Whether the keys should be read again."""
        now_ms = self._clock.monotonic_ms()
        if self._tried_ms is not None and now_ms - self._tried_ms < RETRY_MS:
            return False
        is_old = self._read_ms is None or now_ms - self._read_ms >= REFRESH_MS
        return is_old or self._is_key_missing

    def refresh(self) -> None:
        """Read the keys; this may block. After a failure, the previous keys stay in use.

        Raises:
            ConfigError: they are not keys.
            Unavailable: they cannot be read.
        """
        self._tried_ms = self._clock.monotonic_ms()
        self._keys = self._parse(_read(self._settings))
        self._read_ms = self._tried_ms
        self._is_key_missing = False

    def check(self, token: str) -> AcceptedToken:
        """Return the user of a token.

        Raises:
            ApiError: SASL_AUTHENTICATION_FAILED; the log has the reason, the client does not.
        """
        try:
            claims = self._decode(token)
            return self._accept(claims)
        except (self._jwt.PyJWTError, *_UNREADABLE) as error:
            log.info("token refused: %.*s", _MAX_LOGGED, error)
            raise refusal("the token is invalid") from None

    def _decode(self, token: str) -> dict[str, Any]:
        header = self._jwt.get_unverified_header(token)
        key = self._find_key(header.get("kid"))
        algorithms = [key.declared] if key.declared else list(ALGORITHMS)
        settings = self._settings
        claims: dict[str, Any] = self._jwt.decode(
            token,
            key.public,
            algorithms=algorithms,
            issuer=settings.issuer,
            audience=settings.audience,
            # Times are checked below, with our clock.
            options={
                "require": ["exp", "iss", "aud", settings.user_claim],
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
            },
        )
        return claims

    def _accept(self, claims: dict[str, Any]) -> AcceptedToken:
        user = claims[self._settings.user_claim]
        expires, begins = claims["exp"], claims.get("nbf", 0)
        if not isinstance(user, str) or not user:
            raise ValueError(f"the claim {self._settings.user_claim} is not a name")
        if not all(_is_time(value) for value in (expires, begins)):
            raise ValueError("exp and nbf must be times")
        now = self._clock.now_ms() / 1000
        if expires + _SKEW_SECONDS <= now:
            raise ValueError("the token has expired")
        if begins - _SKEW_SECONDS > now:
            raise ValueError("the token is not valid yet")
        return AcceptedToken(user, int(expires * 1000) + _SKEW_SECONDS * 1000)

    def _find_key(self, key_id: object) -> _SigningKey:
        matching = [key for key in self._keys if key_id is None or key.key_id == key_id]
        if len(matching) == 1:
            return matching[0]
        if key_id is not None and not matching:
            self._is_key_missing = True
        raise ValueError(f"{len(matching)} of {len(self._keys)} keys match key id {key_id!r}")

    def _parse(self, data: bytes) -> list[_SigningKey]:
        where = self._settings.jwks
        try:
            rows = json.loads(data)["keys"]
            parsed = [self._parse_key(row) for row in rows if _is_usable(row)]
        except (self._jwt.PyJWTError, *_UNREADABLE) as error:
            raise ConfigError(f"{where}: not a JWK set: {error}", name="oauth_jwks") from None
        if not parsed:
            raise ConfigError(f"{where}: has no public signing key", name="oauth_jwks")
        return parsed

    def _parse_key(self, row: dict[str, Any]) -> _SigningKey:
        public = self._jwt.PyJWK(row).key
        # A set should have public keys only; the public half of a private one is enough here.
        if hasattr(public, "public_key"):
            public = public.public_key()
        return _SigningKey(row.get("kid"), row.get("alg"), public)


@dataclass(frozen=True, slots=True)
class _SigningKey:
    """One key of the issuer."""

    key_id: str | None
    declared: str | None
    """The algorithm that the set declares for it."""
    public: Any


def _is_time(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    # The comparison also excludes what is not a number (NaN).
    return -_MAX_SECONDS < value < _MAX_SECONDS


def _is_usable(row: dict[str, Any]) -> bool:
    """Whether a row is a public key for signatures of an accepted algorithm."""
    is_asymmetric = row.get("kty") in {"RSA", "EC", "OKP"} and row.get("use", "sig") == "sig"
    return is_asymmetric and row.get("alg", ALGORITHMS[0]) in ALGORITHMS


def _read(settings: BearerSettings) -> bytes:
    try:
        if not settings.is_remote:
            return Path(settings.jwks).read_bytes()
        # The settings accept https only.
        with urllib.request.urlopen(settings.jwks, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
            data: bytes = answer.read(MAX_JWKS_BYTES + 1)
    except OSError as error:
        raise Unavailable(f"oauth_jwks: {settings.jwks}: {error}") from error
    if len(data) > MAX_JWKS_BYTES:
        raise ConfigError(f"{settings.jwks}: longer than {MAX_JWKS_BYTES} bytes", name="oauth_jwks")
    return data


def _load() -> Any:
    try:
        return import_module("jwt")
    except ImportError as error:
        raise ConfigError(
            "OAUTHBEARER needs the package PyJWT: `pip install 'PyJWT[crypto]'`", name="mechanisms"
        ) from error
