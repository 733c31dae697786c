"""AlterClientQuotas (key 49): set or lift limits for users, clients and addresses (KIP-546).

DescribeClientQuotas explains what an entity is.

Versions:
    1: flexible.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import Api, Message, f64, i32
from rookery.wire.resources import QuotaEntityName


class AlterClientQuotasRequest(Message):
    """The changes; each entity's are made together or not at all."""

    entries: list[AlterQuotaEntry]
    validate_only: bool = False  # check, but change nothing


class AlterQuotaEntry(Message):
    """An entity and the changes to its limits."""

    entity: list[EntityData]
    ops: list[OpData]


class EntityData(Message):
    """One part of an entity."""

    entity_type: str  # "user", "client-id" or "ip"
    entity_name: QuotaEntityName | None  # null: the default


class OpData(Message):
    """One limit, to be set or lifted."""

    key: str
    value: f64
    remove: bool  # lift it, whatever the value says


class AlterClientQuotasResponse(Message):
    """One result for each entity."""

    throttle_time_ms: i32 = 0
    entries: list[AlterQuotaResult]


class AlterQuotaResult(Message):
    """Whether one entity's limits were changed."""

    error_code: ErrorCode
    error_message: str | None = None
    entity: list[EntityData]


def refuse(request: AlterClientQuotasRequest, code: ErrorCode) -> AlterClientQuotasResponse:
    """Give the code to every entity."""
    return AlterClientQuotasResponse(
        entries=[
            AlterQuotaResult(
                error_code=code,
                error_message=code.sentence,
                entity=[
                    EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


ALTER_CLIENT_QUOTAS = Api(
    key=49,
    request=AlterClientQuotasRequest,
    response=AlterClientQuotasResponse,
    versions=range(2),
    flexible=1,
    refuse=refuse,
    items=(Items("entries(entity)", "entries(entity)"),),
)
