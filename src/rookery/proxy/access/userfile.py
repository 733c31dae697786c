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
from rookery.proxy.access.watchedfile import WatchedFile
from rookery.security.bearer import TokenVerifier
from rookery.security.credential import (
    SALT_BYTES,
    SCRAM_MECHANISMS,
    ScramCredential,
)
from rookery.security.sasl import AcceptedToken, TokenCredential
from rookery.service.listen.decoys import CredentialForm, Decoys
from rookery.service.listen.passwordmatch import match_password, match_token

_SETTING: Final = "users_file"
_SECRET_BYTES: Final = 32

UserCredentials = dict[str, ScramCredential]
"""A user's credentials by mechanism."""


class _KnownUsers(NamedTuple):
    """The users of one version of the file."""

    credentials: dict[str, UserCredentials]
    decoys: Decoys


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
            path: the path of the file; empty for none.
            mechanisms: those for which credentials are derived from passwords.
            random: creates the secret from which salts are derived.
            tokens: checks bearer tokens; None if they are not accepted.

        Raises:
            ConfigError: the file cannot be used, or others can read it.
        """
        # A password serves PLAIN by the credential of any mechanism.
        self._mechanisms = [each for each in mechanisms if each in SCRAM_MECHANISMS] or [
            "SCRAM-SHA-256"
        ]
        self._secret = random.token(_SECRET_BYTES)
        self._tokens = tokens
        self._nobody = self._with_decoys({})
        self._file = WatchedFile(Path(path), self._read) if path else None

    def scram(self, mechanism: str, username: str) -> ScramCredential | None:
        """Return a user's credential."""
        return self._known.credentials.get(username, {}).get(mechanism)

    def decoy(self, mechanism: str, username: str, *, is_token: bool) -> ScramCredential:
        """Return the credential that an unknown user, or token, appears to have."""
        decoys = self._known.decoys
        return (decoys.of_token if is_token else decoys.of_mechanism)(mechanism, username)

    def delegation_token(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """Return None: the proxy issues no delegation tokens, and cannot check a broker's."""

    def has_password(self, username: str, password: str) -> bool:
        """Check a password against a user's credentials; hashes as much for an unknown user."""
        known = self._known
        credentials = list(known.credentials.get(username, {}).values())
        return match_password(username, password, credentials, known.decoys)

    def check_token(self, token: str) -> AcceptedToken:
        """Return the user of a bearer token, if the listener accepts tokens."""
        return match_token(self._tokens, token)

    def look(self) -> bool:
        """Read the file if it has changed; return whether it has. May take seconds of CPU time.

        Raises:
            ConfigError: the changed file cannot be used; the previous users stay.
        """
        return self._file is not None and self._file.look()

    @property
    def _known(self) -> _KnownUsers:
        return self._nobody if self._file is None else self._file.value

    def _read(self, path: Path) -> _KnownUsers:
        check_private(path, _SETTING)
        try:
            tables = tomllib.loads(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"{path}: {error}", name=_SETTING) from error
        users = {name: self._read_user(path, name, table) for name, table in tables.items()}
        return self._with_decoys(users)

    def _with_decoys(self, users: dict[str, UserCredentials]) -> _KnownUsers:
        forms = (
            [
                CredentialForm.of(each.mechanism, each.iterations, each.salt)
                for each in credentials.values()
            ]
            for credentials in users.values()
        )
        return _KnownUsers(users, Decoys(self._secret, forms))

    def _read_user(self, path: Path, name: str, table: object) -> UserCredentials:
        try:
            return self._credentials(name, table)
        except ValueError as error:
            raise ConfigError(f"{path}: user {name!r}: {error}", name=_SETTING) from error

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
