"""Client quotas: whom they are for, what they limit, and which of them applies (KIP-13, KIP-546).

A quota belongs to an entity: a user, a client id, both together, or an IP address. Each part is a
name or the default for all names that have no quota of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from typing import Final, NamedTuple

from rookery.errors import ApiError, ErrorCode
from rookery.security.acl import format_host


class QuotaDefault(Enum):
    """Stands for every name of a type that has no quota of its own."""

    DEFAULT = "<default>"


DEFAULT: Final = QuotaDefault.DEFAULT
QuotaPart = str | QuotaDefault | None
"""A name, the default, or None if the entity has no part of this type."""


class QuotaEntityType(StrEnum):
    """The types of parts, as requests name them."""

    USER = "user"
    CLIENT_ID = "client-id"
    IP = "ip"


class QuotaKey(StrEnum):
    """What a quota limits, as requests name it."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    """Bytes per second."""
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    """Bytes per second."""
    REQUEST_PERCENTAGE = "request_percentage"
    """Processing time, as a percentage of one processor's."""
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    """Partitions created or deleted per second."""
    CONNECTION_CREATION_RATE = "connection_creation_rate"
    """Connections per second from one address."""


# The largest value of each key; None for keys whose values may be fractions.
_LONG, _INT = 2**63 - 1, 2**31 - 1
_CLIENT_KEYS: Final[Mapping[str, int | None]] = {
    QuotaKey.PRODUCER_BYTE_RATE: _LONG,
    QuotaKey.CONSUMER_BYTE_RATE: _LONG,
    QuotaKey.REQUEST_PERCENTAGE: None,
    QuotaKey.CONTROLLER_MUTATION_RATE: None,
}
_IP_KEYS: Final[Mapping[str, int | None]] = {QuotaKey.CONNECTION_CREATION_RATE: _INT}


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """Whom a quota is for."""

    user: QuotaPart = None
    client_id: QuotaPart = None
    ip: QuotaPart = None

    def __str__(self) -> str:
        """Describe the entity as readable text."""
        return " ".join(
            f"{kind} {'<default>' if name is None else name}" for kind, name in self.parts()
        )

    def parts(self) -> Iterator[tuple[str, str | None]]:
        """Return the parts as requests have them: type and name, None for the default."""
        for kind, part in zip(QuotaEntityType, (self.user, self.client_id, self.ip), strict=True):
            if part is not None:
                yield kind, None if isinstance(part, QuotaDefault) else part


class QuotaLimit(NamedTuple):
    """A limit, and who shares it: clients with the same user and client id here share a meter."""

    value: float
    user: str | None
    """None if the limit is for the client id, with all users together."""
    client_id: str | None
    """None if the limit is for the user, with all client ids together."""


class QuotaTable:
    """The quotas in force."""

    __slots__ = ("_limits", "_quotas")

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]] | None = None) -> None:
        """Index quotas: by entity, the value of each key."""
        self._quotas = {entity: dict(values) for entity, values in (quotas or {}).items()}
        self._limits: dict[str, dict[QuotaEntity, float]] = {}
        for entity, values in self._quotas.items():
            for key, value in values.items():
                self._limits.setdefault(key, {})[_index_form(entity)] = value

    def items(self) -> Iterable[tuple[QuotaEntity, Mapping[str, float]]]:
        """Return all entities and their quotas."""
        return self._quotas.items()

    def limits_any(self, key: QuotaKey) -> bool:
        """Return whether there is a quota for the key at all."""
        return key in self._limits

    def find(self, key: QuotaKey, user: str, client_id: str) -> QuotaLimit | None:
        """Return the most specific limit for a client; None if it is not limited.

        An empty client id counts as a name without a quota of its own, so the defaults apply.
        Kafka exempts such clients from all limits that depend on the client id.
        """
        limits = self._limits.get(key)
        if not limits:
            return None
        for entity in _levels(user, client_id):
            value = limits.get(entity)
            if value is not None:
                return QuotaLimit(
                    value,
                    None if entity.user is None else user,
                    None if entity.client_id is None else client_id,
                )
        return None

    def find_ip(self, address: str) -> float | None:
        """Return the limit on new connections from an address; None if there is none.

        Args:
            address: in the form of `security.acl.format_host`.
        """
        limits = self._limits.get(QuotaKey.CONNECTION_CREATION_RATE, {})
        value = limits.get(QuotaEntity(ip=address))
        return value if value is not None else limits.get(QuotaEntity(ip=DEFAULT))


def _levels(user: str, client_id: str) -> Iterator[QuotaEntity]:
    """Return the entities whose quotas can apply to a client, the most specific first."""
    for user_part in (user, DEFAULT):
        yield QuotaEntity(user_part, client_id)
        yield QuotaEntity(user_part, DEFAULT)
        yield QuotaEntity(user_part)
    yield QuotaEntity(None, client_id)
    yield QuotaEntity(None, DEFAULT)


def read_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Convert the parts of an entity in AlterClientQuotas, with Kafka's checks.

    An address must be written as one. Kafka also takes host names, and asks the name service.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    names: dict[str, QuotaPart] = {}
    for kind, name in parts:
        if kind in names:
            raise _invalid(f"Invalid client quota entity, duplicate entity entry {kind}")
        if kind not in list(QuotaEntityType):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        names[kind] = DEFAULT if name is None else name
    if not names:
        raise _invalid("Invalid empty client quota entity")
    address = names.get(QuotaEntityType.IP)
    if address is not None and len(names) > 1:
        raise _invalid("Invalid quota entity combination, an IP entity must stand alone")
    if isinstance(address, str):
        _check_address(address)
    return QuotaEntity(
        names.get(QuotaEntityType.USER), names.get(QuotaEntityType.CLIENT_ID), address
    )


def read_changes(
    entity: QuotaEntity, changes: Iterable[tuple[str, float | None]]
) -> dict[str, float | None]:
    """Check the changes to an entity's quotas in AlterClientQuotas; None removes a quota.

    As in Kafka, a quota can be removed whatever its key is.

    Raises:
        ApiError: INVALID_REQUEST; then none of the changes may be made.
    """
    checked: dict[str, float | None] = {}
    for key, value in changes:
        if key in checked:
            raise _invalid(f"Duplicate quota key {key} not updating quota for this entity {entity}")
        if value is not None:
            check_quota(entity, key, value)
        checked[key] = value
    return checked


def check_quota(entity: QuotaEntity, key: str, value: float) -> None:
    """Check one quota.

    Raises:
        ApiError: INVALID_REQUEST, if the entity cannot have such a quota or the value is invalid.
    """
    keys = _CLIENT_KEYS if entity.ip is None else _IP_KEYS
    if key not in keys:
        raise _invalid(f"Invalid configuration key {key}")
    # Kafka lets a value that is not a number pass; it would then never throttle.
    if math.isnan(value) or value <= 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    largest = keys[key]
    if largest is None:
        return
    # Compared as floating-point numbers, as in Kafka: 2⁶³ itself is not too large.
    if value > float(largest):
        kind = "a LONG" if largest == _LONG else "an INT"
        raise _invalid(f"Proposed value for {key} is too large for {kind}.")
    if value % 1.0 > 1e-6:
        raise _invalid(f"{key} cannot be a fractional value.")


class QuotaMatch(Enum):
    """How a filter treats one part of entities; the values are those of DescribeClientQuotas."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """A choice of entities."""

    exact: Mapping[str, str | None] = field(default_factory=dict)
    """Parts that must have this name; None for the default."""
    specified: frozenset[str] = frozenset()
    """Types of parts that must be there, with any name or the default."""
    strict: bool = False
    """Whether entities with further parts are left out."""

    def matches(self, entity: QuotaEntity) -> bool:
        """Return whether an entity is in the choice."""
        parts = dict(entity.parts())
        if self.strict and len(parts) != len(self.exact) + len(self.specified):
            return False
        return self.exact.items() <= parts.items() and self.specified <= parts.keys()


def read_quota_filter(
    components: Iterable[tuple[str, int, str | None]], *, strict: bool
) -> QuotaFilter:
    """Convert the filter of DescribeClientQuotas: type, way to match and name of each part.

    Raises:
        ApiError: INVALID_REQUEST, or UNSUPPORTED_VERSION for an unknown type.
    """
    exact: dict[str, str | None] = {}
    specified: set[str] = set()
    for kind, way, name in components:
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in exact or kind in specified:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in list(QuotaEntityType):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if _read_match(way, name) is QuotaMatch.SPECIFIED:
            specified.add(kind)
        else:
            exact[kind] = name
    kinds = exact.keys() | specified
    if QuotaEntityType.IP in kinds and len(kinds) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
    return QuotaFilter(exact, frozenset(specified), strict)


def _read_match(way: int, name: str | None) -> QuotaMatch:
    try:
        match = QuotaMatch(way)
    except ValueError:
        raise _invalid(f"Unknown match type {way}") from None
    if match is QuotaMatch.EXACT and name is None:
        raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    if match is not QuotaMatch.EXACT and name is not None:
        raise _invalid(
            f"Request specified MATCH_TYPE_{match.name}, but also specified a match string."
        )
    return match


def _index_form(entity: QuotaEntity) -> QuotaEntity:
    """Return the entity with its address in the form of connections, not as it was written."""
    return replace(entity, ip=format_host(entity.ip)) if isinstance(entity.ip, str) else entity


def _check_address(text: str) -> None:
    try:
        format_host(text)
    except ValueError:
        raise _invalid(f"{text} is not a valid IP address.") from None


def _invalid(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, reason)
