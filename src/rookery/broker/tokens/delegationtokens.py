"""The delegation tokens of a cluster and their passwords.

A token's password is the HMAC of its id, in base64. Only its id is stored. The key is the broker's
setting, or else it is derived from the cluster's secret, so that tokens work on all brokers without
a setting. A Kafka directory has no secret of the cluster: there, tokens need the setting.
"""

from __future__ import annotations

import base64
import hmac
from functools import lru_cache
from pathlib import Path
from typing import Final

from rookery.broker.settings import BrokerSettings
from rookery.clock import Clock
from rookery.cluster.replica import Replica
from rookery.cluster.state.security import Security
from rookery.cluster.state.tokens import StoredToken
from rookery.errors import ApiError, ConfigError, ErrorCode
from rookery.security.credential import MIN_ITERATIONS, SALT_BYTES, ScramCredential
from rookery.security.principal import USER, Principal
from rookery.security.sasl import TokenCredential

_PURPOSE: Final = b"delegation tokens"
_SALT_PURPOSE: Final = b"salt of "
_MAX_CREDENTIALS: Final = 4_096
"""How many credentials are remembered: deriving one costs milliseconds at each login."""


class DelegationTokens:
    """Derives the passwords of the tokens in the state that the replica has applied."""

    def __init__(self, settings: BrokerSettings, replica: Replica, clock: Clock) -> None:
        """Read the key, if a file is set.

        Raises:
            ConfigError: the file cannot be read, or it is empty.
        """
        self.settings = settings.delegation_tokens
        self._replica = replica
        self._clock = clock
        self._key = _read_key(self.settings.secret_file)
        self._derives_key = not settings.log_dir
        self._index: dict[bytes, str] = {}
        self._index_source: tuple[Security | None, int, bytes] = None, 0, b""

    @property
    def key(self) -> bytes:
        """The key of the passwords; empty if there are no tokens here."""
        if not self.settings.enabled:
            return b""
        secret = self._replica.state.security.secret
        if self._key or not self._derives_key or not secret:
            return self._key
        return hmac.digest(secret, _PURPOSE, "sha256")

    def require_key(self) -> bytes:
        """Return the key.

        Raises:
            ApiError: DELEGATION_TOKEN_AUTH_DISABLED; there are no tokens here.
        """
        key = self.key
        if not key:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        return key

    def hmac_of(self, token_id: str) -> bytes:
        """Return the HMAC of a token, with which its owner changes it and logs in.

        Raises:
            ApiError: DELEGATION_TOKEN_AUTH_DISABLED; there are no tokens here.
        """
        return _hmac(self.require_key(), token_id)

    def find(self, token_hmac: bytes) -> str | None:
        """Return the id of the token with an HMAC; None if there is none.

        Raises:
            ApiError: DELEGATION_TOKEN_AUTH_DISABLED; there are no tokens here.
        """
        key, security = self.require_key(), self._replica.state.security
        source = security, security.tokens_version, key
        if source != self._index_source:
            self._index = {_hmac(key, token_id): token_id for token_id in security.tokens}
            self._index_source = source
        return self._index.get(token_hmac)

    def credential(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """Return what a client that logs in with a token must prove; None if it cannot."""
        token, key = self._replica.state.security.tokens.get(token_id), self.key
        if token is None or not key or token.is_expired(self._clock.now_ms()):
            return None
        owner = _user_of(token)
        if owner is None:
            return None
        return TokenCredential(_credential(mechanism, key, token_id), owner, token.expires_ms)


def _user_of(token: StoredToken) -> str | None:
    """Return the user that a token stands for; logins create no other kind of principal."""
    owner = Principal.parse(token.owner)
    return owner.name if owner.kind == USER else None


def _hmac(key: bytes, token_id: str) -> bytes:
    return hmac.digest(key, token_id.encode(), "sha512")


@lru_cache(maxsize=_MAX_CREDENTIALS)
def _credential(mechanism: str, key: bytes, token_id: str) -> ScramCredential:
    password = base64.b64encode(_hmac(key, token_id)).decode()
    # All brokers use the same salt, so that a client can keep what it has computed.
    salt = hmac.digest(key, _SALT_PURPOSE + token_id.encode(), "sha256")[:SALT_BYTES]
    return ScramCredential.from_password(mechanism, password, salt, MIN_ITERATIONS)


def _read_key(path: str) -> bytes:
    if not path:
        return b""
    try:
        key = Path(path).read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error.strerror or error}", name="secret_file"
        ) from error
    if not key:
        raise ConfigError(f"{path}: is empty; write a random key to it", name="secret_file")
    return key
