"""Access rules, credentials and quotas, as all brokers agree on them."""

from __future__ import annotations

from typing import NamedTuple

from rookery.model.acl import StoredAcl

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Types and names of an entity's parts, sorted by type; None is the default of a type."""


class StoredScram(NamedTuple):
    """One user's keys for one SCRAM mechanism."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"StoredScram(iterations={self.iterations})"


class Security:
    """What decides who may log in, what they may do and how much."""

    __slots__ = (
        "accounts_version", "acls", "acls_version", "quotas", "quotas_version", "scram", "secret",
    )  # fmt: skip

    def __init__(self) -> None:
        self.acls: dict[StoredAcl, None] = {}
        self.acls_version = 0
        """Changes with the rules, so that indexes over them are rebuilt; not replicated."""
        self.scram: dict[str, dict[int, StoredScram]] = {}
        """Credentials by user name and by Kafka's number of the mechanism."""
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.quotas_version = 0
        """Changes with the quotas; not replicated."""
        self.secret = b""
        """Empty until a broker has created it."""
        self.accounts_version = 0
        """Changes with the credentials and the secret; not replicated."""

    @property
    def version(self) -> tuple[int, int, int]:
        """Changes with everything here; not replicated."""
        return self.acls_version, self.accounts_version, self.quotas_version
