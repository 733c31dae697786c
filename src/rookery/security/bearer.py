"""Checks bearer tokens: JWTs that are signed by one of an issuer's keys (a JWK set).

Only asymmetric algorithms are accepted: with a symmetric one, a server that checks tokens could
also issue them, and a public key could be taken for a shared secret. The keys are in memory, so a
check never waits. `refresh` reads them again, from a file or an https URL.
"""

from __future__ import annotations

import logging
import unicodedata
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from rookery.clock import Clock
from rookery.errors import ConfigError, Error
from rookery.security.jwks import ALGORITHMS, SigningKey, is_url, parse_keys, read_jwks
from rookery.security.sasl import AcceptedToken, refusal

log = logging.getLogger(__name__)

REFRESH_MS: Final = 3_600_000
"""The age at which keys are read again (Kafka's sasl.oauthbearer.jwks.endpoint.refresh.ms)."""
RETRY_MS: Final = 10_000
"""The interval of attempts while keys are missing; a token can name a key that is new."""
_SKEW_SECONDS: Final = 30
"""How far the clocks of issuer and server may differ (Kafka's default)."""
_LAST_SECOND: Final = 2**53 // 1000
"""The latest accepted time: its milliseconds are exact in every number format of JSON."""
_NOT_IN_NAMES: Final = frozenset({"Cc", "Cs"})
"""The Unicode categories of control characters and of halves of characters."""
_MAX_LOGGED: Final = 200
"""The length of a reason in the log: anyone can send a token, and choose its text."""
_UNREADABLE: Final = (ValueError, TypeError, AttributeError, KeyError, RecursionError)
"""What PyJWT raises, besides its own errors, for a token that it cannot read."""


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
        return is_url(self.jwks)

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
        self._keys: list[SigningKey] = []
        self._read_ms: int | None = None
        self._tried_ms: int | None = None
        self._is_key_missing = False
        self.trouble = ""
        """Why the keys could not be read the last time; empty if they could."""

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
        place = self._settings.jwks
        try:
            self._keys = parse_keys(read_jwks(place, self._clock), place)
        except Error as error:
            self.trouble = str(error)
            raise
        self._read_ms = self._tried_ms
        self._is_key_missing = False
        self.trouble = ""

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
        if any(unicodedata.category(letter) in _NOT_IN_NAMES for letter in user):
            raise ValueError(f"the claim {self._settings.user_claim} has control characters")
        if not all(_is_time(value) for value in (expires, begins)):
            raise ValueError(f"exp and nbf must be numbers up to {_LAST_SECOND}")
        now = self._clock.now_ms() / 1000
        if expires + _SKEW_SECONDS <= now:
            raise ValueError("the token has expired")
        if begins - _SKEW_SECONDS > now:
            raise ValueError("the token is not valid yet")
        return AcceptedToken(user, int(expires * 1000) + _SKEW_SECONDS * 1000)

    def _find_key(self, key_id: object) -> SigningKey:
        matching = [key for key in self._keys if key_id is None or key.key_id == key_id]
        if len(matching) == 1:
            return matching[0]
        if key_id is not None and not matching:
            self._is_key_missing = True
        raise ValueError(f"{len(matching)} of {len(self._keys)} keys match key id {key_id!r}")


def _is_time(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    # This excludes infinity and NaN, too.
    return -_LAST_SECOND <= value <= _LAST_SECOND


def _load() -> Any:
    try:
        return import_module("jwt")
    except ImportError as error:
        raise ConfigError(
            "OAUTHBEARER needs the package PyJWT: `pip install 'PyJWT[crypto]'`", name="mechanisms"
        ) from error
