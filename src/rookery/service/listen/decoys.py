"""Credentials of users that do not exist, which look like those of users that do.

A login reveals the form of a credential: SCRAM sends its salt and its iteration count, and PLAIN
takes as long as the hashing. If all unknown users had one form, a user with another form could be
recognised. So the form of an unknown user is drawn from those in use, each as often as it is in
use. The name and a secret decide the draw: a name keeps its form and its salt, and a change of one
user changes the draw of few names.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from typing import Final, Generic, NamedTuple, TypeVar

from rookery.security.credential import (
    HASHES,
    MIN_ITERATIONS,
    SALT_BYTES,
    ScramCredential,
    sign,
)

T = TypeVar("T")

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_TEXT_BITS: Final = 130
_TEXT_SALT: Final = re.compile(rb"[1-9a-z][0-9a-z]{22,25}")
"""The salts of Kafka's tools: numbers of 130 bits in base 36."""
_DRAW_BITS: Final = 64


class CredentialForm(NamedTuple):
    """What a login reveals of a credential."""

    mechanism: str
    iterations: int
    salt_bytes: int
    """The size of the salt; 0 for a salt of Kafka's tools."""

    @classmethod
    def of(cls, mechanism: str, iterations: int, salt: bytes) -> CredentialForm:
        """Return the form of a credential."""
        return cls(mechanism, iterations, 0 if _TEXT_SALT.fullmatch(salt) else len(salt))

    def decoy(self, secret: bytes, username: str) -> ScramCredential:
        """Return a credential of this form, whose password is unknown."""
        key = sign(self.mechanism, secret, f"{self.mechanism},{username}".encode())
        # With another form, the salt is another one, too: as if the password had been changed.
        stream = hashlib.shake_256(key + repr(self).encode())
        salt = stream.digest(self.salt_bytes) if self.salt_bytes else _text_salt(stream.digest(17))
        return ScramCredential(self.mechanism, salt, self.iterations, key, key)


_USUAL_FORMS: Final = {
    mechanism: CredentialForm(mechanism, MIN_ITERATIONS, SALT_BYTES) for mechanism in HASHES
}
"""The forms of credentials that no setting changes, such as those of delegation tokens."""


class Decoys:
    """The credentials that unknown users appear to have."""

    def __init__(self, secret: bytes, users: Iterable[Iterable[CredentialForm]]) -> None:
        """Count the forms in use.

        Args:
            secret: decides the draws and the salts.
            users: the forms of each user's credentials.
        """
        self._secret = secret
        by_user = Counter(tuple(sorted(forms)) for forms in users)
        by_mechanism = {mechanism: Counter[CredentialForm]() for mechanism in HASHES}
        for forms, count in by_user.items():
            for form in forms:
                by_mechanism[form.mechanism][form] += count
        self._users = _Draw(by_user or Counter([tuple(_USUAL_FORMS.values())]))
        self._forms = {
            mechanism: _Draw(counts or Counter([_USUAL_FORMS[mechanism]]))
            for mechanism, counts in by_mechanism.items()
        }

    def of_user(self, username: str) -> list[ScramCredential]:
        """Return all credentials that an unknown user appears to have."""
        return [form.decoy(self._secret, username) for form in self._forms_of(username)]

    def of_mechanism(self, mechanism: str, username: str) -> ScramCredential:
        """Return the credential for a mechanism that a user without one appears to have."""
        drawn = {form.mechanism: form for form in self._forms_of(username)}
        form = drawn.get(mechanism) or self._forms[mechanism].at(self._place(mechanism, username))
        return form.decoy(self._secret, username)

    def of_token(self, mechanism: str, token_id: str) -> ScramCredential:
        """Return the credential that an unknown delegation token appears to have."""
        return _USUAL_FORMS[mechanism].decoy(self._secret, token_id)

    def _forms_of(self, username: str) -> tuple[CredentialForm, ...]:
        return self._users.at(self._place("", username))

    def _place(self, purpose: str, username: str) -> int:
        seed = f"form {purpose},{username}".encode()
        return int.from_bytes(sign("SCRAM-SHA-256", self._secret, seed)[: _DRAW_BITS // 8])


class _Draw(Generic[T]):
    """Values, each on as large a part of a line as it is frequent."""

    def __init__(self, counts: Counter[T]) -> None:
        self._values = sorted(counts, key=repr)
        self._ends = list(accumulate(counts[value] for value in self._values))

    def at(self, place: int) -> T:
        """Return the value at a place of the line, which has 64 bits."""
        return self._values[bisect_right(self._ends, place * self._ends[-1] >> _DRAW_BITS)]


def _text_salt(data: bytes) -> bytes:
    number, digits = int.from_bytes(data) >> (8 * len(data) - _TEXT_BITS), ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits.encode()
