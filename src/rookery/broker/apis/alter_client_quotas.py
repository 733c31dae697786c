"""AlterClientQuotas: set or remove quotas, those of one entity all together or not at all."""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.broker.decisions import decide_for_all_brokers, require_security
from rookery.cluster.events.securityevents import QuotaChange, QuotaEntityPart, QuotasChanged
from rookery.errors import ApiError, ErrorCode
from rookery.security.quota import QuotaEntity, read_changes, read_entity
from rookery.wire.messages.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterQuotaEntry,
    AlterQuotaResult,
    EntityData,
)


@handles(
    ALTER_CLIENT_QUOTAS,
    mutates=True,
)
async def alter_client_quotas(
    call: Call, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Change the quotas of every entity whose changes are all valid."""
    require_security(call)
    results: list[AlterQuotaResult] = []
    plans: list[tuple[AlterQuotaResult, QuotasChanged]] = []
    seen: set[QuotaEntity] = set()
    for entry in request.entries:
        result = AlterQuotaResult(error_code=ErrorCode.NONE, entity=_parts(entry))
        results.append(result)
        try:
            plans.append((result, _event(entry, seen)))
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.reason
    if not request.validate_only:
        outcomes = await decide_for_all_brokers(call, [event for _, event in plans])
        for (result, _), outcome in zip(plans, outcomes, strict=True):
            if outcome.error is not ErrorCode.NONE:
                result.error_code, result.error_message = outcome.error, outcome.error.sentence
    return AlterClientQuotasResponse(entries=results)


def _event(entry: AlterQuotaEntry, seen: set[QuotaEntity]) -> QuotasChanged:
    """Convert the changes of one entity.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    entity = read_entity((part.entity_type, part.entity_name) for part in entry.entity)
    if entity in seen:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {entity}")
    seen.add(entity)
    changes = read_changes(entity, ((op.key, None if op.remove else op.value) for op in entry.ops))
    return QuotasChanged(
        entity=[QuotaEntityPart(entity_type=kind, name=name) for kind, name in entity.parts()],
        changes=[
            QuotaChange(key=key, value=value or 0.0, is_removed=value is None)
            for key, value in changes.items()
        ],
    )


def _parts(entry: AlterQuotaEntry) -> list[EntityData]:
    return [
        EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
        for part in entry.entity
    ]
