"""The users of a virtual cluster, from a file: passwords, or SCRAM credentials.

    [alice]
    password = "alice-secret"

    [bob]
    SCRAM-SHA-512 = "salt=…,stored_key=…,server_key=…,iterations=4096"    Kafka's form, in base64

Only its owner may be able to read the file. A changed file is used for the next logins.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rookery.clock import Random
from rookery.errors import ConfigError
from rookery.proxy.access.privatesecret import check_private
from rookery.security.bearer import TokenVerifier
from rookery.security.credential import (
    MIN_ITERATIONS,
    SALT_BYTES,
    SCRAM_MECHANISMS,
    ScramCredential,
)
from rookery.security.sasl import AcceptedToken, TokenCredential, refusal

_SETTING: Final = "users_file"
_SECRET_BYTES: Final = 32
_NO_SALT: Final = b"rookery: no such user"

UserCredentials = dict[str, ScramCredential]
"""A user's credentials by mechanism."""


class _FileVersion(NamedTuple):
    """Differs between two versions of a file."""

    inode: int
    size: int
    modified_ns: int
    mode: int


class UserFile:
    """Answers logins from a file that was read last; without a file, there are only tokens."""

    def __init__(
        self,
        path: str,
        mechanisms: Sequence[str],
        random: Random,
        tokens: TokenVerifier | None = None,
    ) -> None:
        """Read the file.

        Args:
            path: of the file; empty for none.
            mechanisms: those for which credentials are derived from passwords.
            random: creates the secret from which salts are derived.
            tokens: checks bearer tokens; None if they are not accepted.

        Raises:
            ConfigError: the file cannot be used, or others can read it.
        """
        self._path = Path(path) if path else None
        # A password serves PLAIN by the credential of any mechanism.
        self._mechanisms = [each for each in mechanisms if each in SCRAM_MECHANISMS] or [
            "SCRAM-SHA-256"
        ]
        self._secret = random.token(_SECRET_BYTES)
        self._tokens = tokens
        self._loaded = self._version()
        self._users = self._read()

    @property
    def secret(self) -> bytes:
        """The secret from which the salts of unknown users are derived."""
        return self._secret

    @property
    def iterations(self) -> int:
        """The iteration count that unknown users appear to have."""
        return MIN_ITERATIONS

    def scram(self, mechanism: str, username: str) -> ScramCredential | None:
        """Return a user's credential."""
        return self._users.get(username, {}).get(mechanism)

    def delegation_token(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """Return None: the proxy issues no delegation tokens, and cannot check a broker's."""

    def has_password(self, username: str, password: str) -> bool:
        """Check a password against a user's credentials; takes as long for an unknown user."""
        for credential in self._users.get(username, {}).values():
            return credential.matches(password)
        ScramCredential.from_password("SCRAM-SHA-256", password, _NO_SALT, self.iterations)
        return False

    def check_token(self, token: str) -> AcceptedToken:
        """Return the user of a bearer token, if the listener accepts tokens."""
        if self._tokens is None:
            raise refusal("tokens are not accepted here")
        return self._tokens.check(token)

    def look(self) -> bool:
        """Read the file if it has changed; return whether it has. May take seconds of CPU time.

        Raises:
            ConfigError: the changed file cannot be used; the previous users stay.
        """
        version = self._version()
        if version == self._loaded:
            return False
        try:
            self._users = self._read()
        except ConfigError as error:
            raise ConfigError(f"{error}; the previous users stay in use") from error
        self._loaded = version
        return True

    def _version(self) -> _FileVersion | None:
        try:
            stat = self._path.stat() if self._path is not None else None
        except OSError:
            return None
        if stat is None:
            return None
        return _FileVersion(stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_mode)

    def _read(self) -> dict[str, UserCredentials]:
        if self._path is None:
            return {}
        check_private(self._path, _SETTING)
        try:
            tables = tomllib.loads(self._path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"{self._path}: {error}", name=_SETTING) from error
        return {name: self._read_user(name, table) for name, table in tables.items()}

    def _read_user(self, name: str, table: object) -> UserCredentials:
        try:
            return self._credentials(name, table)
        except ValueError as error:
            raise ConfigError(f"{self._path}: user {name!r}: {error}", name=_SETTING) from error

    def _credentials(self, name: str, table: object) -> UserCredentials:
        if not isinstance(table, dict) or not table:
            raise ValueError("must be a table with a password or SCRAM credentials")
        credentials: UserCredentials = {}
        for key, value in table.items():
            if not isinstance(value, str) or not value:
                raise ValueError(f"{key} must be a text")
            if key == "password":
                credentials |= {each: self._derive(name, each, value) for each in self._mechanisms}
            elif key in SCRAM_MECHANISMS:
                credentials[key] = _parse_credential(key, value)
            else:
                known = ", ".join(("password", *SCRAM_MECHANISMS))
                raise ValueError(f"{key!r} is unknown; known are {known}")
        return credentials

    def _derive(self, name: str, mechanism: str, password: str) -> ScramCredential:
        # From the secret, as the salt of an unknown user is: both stay and change together.
        seed = f"{mechanism},{name}".encode()
        salt = hmac.digest(self._secret, seed, hashlib.sha256)[:SALT_BYTES]
        return ScramCredential.from_password(mechanism, password, salt)


def _parse_credential(mechanism: str, text: str) -> ScramCredential:
    """Parse Kafka's form of a credential.

    Raises:
        ValueError: it has another form.
    """
    fields = dict(part.strip().split("=", 1) for part in text.split(",") if "=" in part)
    if fields.keys() != {"salt", "stored_key", "server_key", "iterations"}:
        raise ValueError(f"{mechanism} must hold salt, stored_key, server_key and iterations")
    salt, stored_key, server_key = (
        base64.b64decode(fields[key], validate=True) for key in ("salt", "stored_key", "server_key")
    )
    return ScramCredential(mechanism, salt, int(fields["iterations"]), stored_key, server_key)
