"""Flags that name the entity of a quota."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.cli.options.fields import option, switch
from rookery.errors import ApiError, ConfigError

if TYPE_CHECKING:
    from rookery.security.quota import QuotaEntity, QuotaPart


@dataclass(frozen=True, kw_only=True)
class QuotaEntityOptions:
    """A user, a client id, both, or an IP address; each by its name or the default for all."""

    user: str | None = option("--for-user", metavar="NAME", help="the quota of a user")
    user_default: bool = switch("--for-user-default", help="the default quota for users")
    client_id: str | None = option("--for-client-id", metavar="ID", help="the quota of a client id")
    client_id_default: bool = switch(
        "--for-client-id-default", help="the default quota for client ids"
    )
    ip: str | None = option(
        "--for-ip", metavar="ADDRESS", help="the quota of a client's IP address"
    )
    ip_default: bool = switch("--for-ip-default", help="the default quota for IP addresses")

    def entity(self) -> QuotaEntity | None:
        """Return the entity; None if no flag was given.

        Raises:
            ConfigError: the flags contradict each other.
        """
        from rookery.security.quota import QuotaEntity, read_entity

        chosen = QuotaEntity(
            _part("user", self.user, is_default=self.user_default),
            _part("client-id", self.client_id, is_default=self.client_id_default),
            _part("ip", self.ip, is_default=self.ip_default),
        )
        if chosen == QuotaEntity():
            return None
        try:
            return read_entity(chosen.parts())
        except ApiError as error:
            raise ConfigError(error.text) from error

    def require(self) -> QuotaEntity:
        """Return the entity.

        Raises:
            ConfigError: no flag was given, or the flags contradict each other.
        """
        entity = self.entity()
        if entity is None:
            raise ConfigError("name the entity: --for-user, --for-client-id, --for-ip or a default")
        return entity


def _part(name: str, value: str | None, *, is_default: bool) -> QuotaPart:
    from rookery.security.quota import DEFAULT

    if value is not None and is_default:
        raise ConfigError(f"--for-{name} and --for-{name}-default exclude each other")
    return DEFAULT if is_default else value
