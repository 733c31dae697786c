"""The stored form of a password: SCRAM's salted keys (RFC 5802), never the password itself.

Passwords are hashed as their UTF-8 bytes, without SASLprep. Apache Kafka and its clients do the
same, and credentials must be interchangeable.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Final


class ScramMechanism(IntEnum):
    """The SCRAM mechanisms; the numbers are Kafka's."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def text(self) -> str:
        """The name in SASL, as in `SCRAM-SHA-512`."""
        return f"SCRAM-{self.name.replace('_', '-')}"


SCRAM_MECHANISMS: Final = MappingProxyType({each.text: each for each in ScramMechanism})
"""The SCRAM mechanisms by their names in SASL."""
HASHES: Final = {
    ScramMechanism.SHA_256.text: "sha256",
    ScramMechanism.SHA_512.text: "sha512",
}
"""The hash function of each SCRAM mechanism."""

MIN_ITERATIONS: Final = 4096
# A hostile peer may send any count: a million costs a second, 2³¹ would cost half an hour.
MAX_ITERATIONS: Final = 1_000_000
SALT_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """One user's keys for one SCRAM mechanism; the keys are not sufficient to log in."""

    mechanism: str
    salt: bytes = field(repr=False)
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        check_iterations(self.iterations)
        if not self.salt:
            raise ValueError("a SCRAM credential needs a salt")
        size = hashlib.new(hash_name(self.mechanism)).digest_size
        if not len(self.stored_key) == len(self.server_key) == size:
            raise ValueError(f"the keys of a {self.mechanism} credential have {size} bytes")

    @classmethod
    def from_password(
        cls, mechanism: str, password: str, salt: bytes, iterations: int = MIN_ITERATIONS
    ) -> ScramCredential:
        """Derive the keys; costs milliseconds of CPU for every few thousand iterations."""
        check_iterations(iterations)
        salted = salted_password(mechanism, password, salt, iterations)
        stored_key = digest(mechanism, client_key(mechanism, salted))
        return cls(mechanism, salt, iterations, stored_key, server_key(mechanism, salted))

    def matches(self, password: str) -> bool:
        """Check a password sent in the clear (PLAIN); costs as much as `from_password`."""
        salted = salted_password(self.mechanism, password, self.salt, self.iterations)
        stored_key = digest(self.mechanism, client_key(self.mechanism, salted))
        return hmac.compare_digest(stored_key, self.stored_key)


def check_iterations(iterations: int) -> None:
    """Reject counts that are unsafe or excessive, before any computation.

    Raises:
        ValueError: the count is out of range.
    """
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ValueError(
            f"SCRAM iterations must be {MIN_ITERATIONS} to {MAX_ITERATIONS}, not {iterations}"
        )


def hash_name(mechanism: str) -> str:
    """Return hashlib's name for the mechanism's hash.

    Raises:
        ValueError: the mechanism is not a known SCRAM mechanism.
    """
    if mechanism not in HASHES:
        raise ValueError(f"{mechanism!r} is not one of {', '.join(HASHES)}")
    return HASHES[mechanism]


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Compute RFC 5802's SaltedPassword, the one slow step."""
    return hashlib.pbkdf2_hmac(hash_name(mechanism), password.encode(), salt, iterations)


def client_key(mechanism: str, salted: bytes) -> bytes:
    """Compute RFC 5802's ClientKey."""
    return sign(mechanism, salted, b"Client Key")


def server_key(mechanism: str, salted: bytes) -> bytes:
    """Compute RFC 5802's ServerKey."""
    return sign(mechanism, salted, b"Server Key")


def sign(mechanism: str, key: bytes, message: bytes) -> bytes:
    """Compute the mechanism's HMAC."""
    return hmac.digest(key, message, hash_name(mechanism))


def digest(mechanism: str, data: bytes) -> bytes:
    """Compute the mechanism's hash."""
    return hashlib.new(hash_name(mechanism), data).digest()
