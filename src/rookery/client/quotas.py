"""The client quotas of a cluster: list them, set them, remove them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from rookery.client.connect.connections import Link
from rookery.client.connect.router import Router
from rookery.errors import ApiError, ErrorCode
from rookery.security.quota import QuotaEntity, read_entity
from rookery.wire.messages.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequest,
    AlterQuotaEntry,
    EntityData,
    OpData,
)
from rookery.wire.messages.describe_client_quotas import (
    DESCRIBE_CLIENT_QUOTAS,
    DescribeClientQuotasRequest,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class QuotaDescription:
    """An entity and its limits by key."""

    entity: QuotaEntity
    limits: Mapping[str, float]


class QuotaAdmin:
    """Describes and changes the client quotas of a cluster."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def describe(self, timeout_ms: int | None = None) -> list[QuotaDescription]:
        """Return all entities that have quotas."""

        async def ask(link: Link, request_ms: int) -> list[QuotaDescription]:
            version = link.versions.choose(DESCRIBE_CLIENT_QUOTAS)
            request = DescribeClientQuotasRequest(components=[], strict=False)
            answer = await link.call(DESCRIBE_CLIENT_QUOTAS, version, request, request_ms)
            _check(answer.error_code, "describe quotas", answer.error_message)
            return [
                QuotaDescription(
                    read_entity((part.entity_type, part.entity_name) for part in entry.entity),
                    {value.key: value.value for value in entry.values},
                )
                for entry in answer.entries or ()
            ]

        return sorted(
            await self._ask("describe quotas", ask, timeout_ms), key=lambda row: str(row.entity)
        )

    async def alter(
        self,
        entity: QuotaEntity,
        changes: Mapping[str, float | None],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Set limits of an entity, or remove those whose value is None, all together.

        Raises:
            ApiError: INVALID_REQUEST; nothing was changed.
        """
        what = f"change the quotas of {entity}"
        parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts()]
        ops = [
            OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in changes.items()
        ]
        request = AlterClientQuotasRequest(
            entries=[AlterQuotaEntry(entity=parts, ops=ops)], validate_only=validate_only
        )

        async def ask(link: Link, request_ms: int) -> None:
            version = link.versions.choose(ALTER_CLIENT_QUOTAS)
            answer = await link.call(ALTER_CLIENT_QUOTAS, version, request, request_ms)
            for row in answer.entries:
                _check(row.error_code, what, row.error_message)

        await self._ask(what, ask, timeout_ms)

    async def _ask(
        self, what: str, ask: Callable[[Link, int], Awaitable[T]], timeout_ms: int | None
    ) -> T:
        deadline = self._router.retrier.deadline(timeout_ms)
        return await self._router.ask_controller(what, ask, deadline)


def _check(code: ErrorCode, what: str, message: str | None) -> None:
    if code is not ErrorCode.NONE:
        raise ApiError(code, f"{what}: {message or code.sentence}")
