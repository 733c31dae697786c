"""Users in memory, for servers under test."""

from __future__ import annotations

from typing import Final

from rookery.security.credential import HASHES, MIN_ITERATIONS, SALT_BYTES, ScramCredential
from rookery.security.sasl import AcceptedToken, TokenCredential, refusal
from rookery.service.listen.decoys import CredentialForm, Decoys

TOKEN_PREFIX: Final = "token-of-"  # noqa: S105 (the beginning of an id)


class MemoryAccounts:
    """Users and their passwords; anyone may log in with PLAIN and with every SCRAM mechanism."""

    def __init__(self, passwords: dict[str, str], iterations: int = MIN_ITERATIONS) -> None:
        self._tokens = {password: username for username, password in passwords.items()}
        self._credentials = {
            (mechanism, username): ScramCredential.from_password(
                mechanism, password, username.encode().ljust(SALT_BYTES, b"."), iterations
            )
            for username, password in passwords.items()
            for mechanism in HASHES
        }
        salt = bytes(SALT_BYTES)
        forms = [CredentialForm.of(mechanism, iterations, salt) for mechanism in HASHES]
        self._decoys = Decoys(b"known to this test only", [forms])

    def scram(self, mechanism: str, username: str) -> ScramCredential | None:
        """Return the user's credential for that mechanism, or None if there is none."""
        return self._credentials.get((mechanism, username))

    def delegation_token(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """Accept the password of a user as the HMAC of the token `token-of-USER`."""
        owner = token_id.removeprefix(TOKEN_PREFIX)
        known = self._credentials.get((mechanism, owner))
        if known is None or owner == token_id:
            return None
        return TokenCredential(known, owner, expires_ms=0)

    def decoy(self, mechanism: str, username: str, *, is_token: bool) -> ScramCredential:
        """Return the credential that an unknown user, or token, appears to have."""
        decoys = self._decoys
        return (decoys.of_token if is_token else decoys.of_mechanism)(mechanism, username)

    def has_password(self, username: str, password: str) -> bool:
        """Return whether it is the user's password."""
        credential = self._credentials.get(("SCRAM-SHA-256", username))
        return credential is not None and credential.matches(password)

    def check_token(self, token: str) -> AcceptedToken:
        """Accept a user's password as the token."""
        if token not in self._tokens:
            raise refusal("the token is invalid")
        return AcceptedToken(self._tokens[token])
