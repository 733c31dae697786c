"""DescribeClientQuotas (key 48): the limits set for users, clients and addresses (KIP-546).

A quota belongs to an entity, which is a set of parts: a user, a client id, both, or an IP address
(KIP-612). A part without a name is the default for all names of its type.

Versions:
    1: flexible.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import Api, Message, f64, i8, i32
from rookery.wire.resources import QuotaEntityName


class DescribeClientQuotasRequest(Message):
    """A filter on entities: every component must match."""

    components: list[ComponentData]
    strict: bool  # leave out entities that have further parts


class ComponentData(Message):
    """The condition for one part of an entity."""

    entity_type: str  # "user", "client-id" or "ip"
    match_type: i8  # 0 this name, 1 the default, 2 any name
    match: QuotaEntityName | None  # the name; null unless the match type is 0


class DescribeClientQuotasResponse(Message):
    """The entities found."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    error_message: str | None = None
    entries: list[EntryData] | None  # null on error


class EntryData(Message):
    """An entity and its limits."""

    entity: list[EntityData]
    values: list[ValueData]


class EntityData(Message):
    """One part of an entity."""

    entity_type: str
    entity_name: QuotaEntityName | None  # null: the default


class ValueData(Message):
    """One limit, such as `producer_byte_rate` in bytes a second."""

    key: str
    value: f64


def refuse(request: DescribeClientQuotasRequest, code: ErrorCode) -> DescribeClientQuotasResponse:
    """Answer with the code and null in place of entities."""
    return DescribeClientQuotasResponse(error_code=code, error_message=code.sentence, entries=None)


DESCRIBE_CLIENT_QUOTAS = Api(
    key=48,
    request=DescribeClientQuotasRequest,
    response=DescribeClientQuotasResponse,
    versions=range(2),
    flexible=1,
    refuse=refuse,
)
