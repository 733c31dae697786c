"""The ways to log in to a broker, and the credentials for them, right and wrong."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.broker.secured import PASSWORD, SASL_MECHANISMS, USER

WRONG_PASSWORD: Final = "wrong-secret"  # noqa: S105 (of a test)


@dataclass(frozen=True, slots=True)
class LoginWay:
    """One row of the table: a listener, and how a client proves who it is there."""

    listener: str
    mechanism: str = ""
    """The SASL mechanism; empty on listeners without SASL."""
    has_certificate: bool = False

    @property
    def has_tls(self) -> bool:
        return self.listener.endswith("ssl")

    @property
    def is_anonymous(self) -> bool:
        return not self.mechanism and not self.has_certificate

    def __str__(self) -> str:
        kind = "mTLS" if self.has_certificate else "TLS"
        return f"{self.listener}-{self.mechanism or kind}"


MECHANISMS: Final = (*SASL_MECHANISMS, "OAUTHBEARER")
WAYS: Final = (
    *(LoginWay("sasl_ssl", mechanism) for mechanism in MECHANISMS),
    *(LoginWay("sasl_plaintext", mechanism) for mechanism in MECHANISMS),
    LoginWay("ssl"),
    LoginWay("ssl", has_certificate=True),
)
REFUSED_WAYS: Final = tuple(
    way for way in WAYS if not way.is_anonymous and way.listener != "sasl_plaintext"
)
"""The ways of which a wrong credential is tried: the transport does not matter for SASL."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client needs to log in: each client takes what its way asks for."""

    way: LoginWay
    address: str
    authority: Path
    certificate: Path
    """The client's certificate and key."""
    token: str
    """The bearer token."""
    password: str = PASSWORD
    user: str = USER
