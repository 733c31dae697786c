"""DescribeClientQuotas: the quotas of the entities that a filter chooses."""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.errors import ApiError, ErrorCode
from rookery.security.quota import read_entity, read_quota_filter
from rookery.wire.messages.describe_client_quotas import (
    DESCRIBE_CLIENT_QUOTAS,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


@handles(
    DESCRIBE_CLIENT_QUOTAS,
    mutates=False,
)
async def describe_client_quotas(
    call: Call, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """List the quotas of every entity that has all parts of the filter."""
    components = [(part.entity_type, part.match_type, part.match) for part in request.components]
    try:
        chosen = read_quota_filter(components, strict=request.strict)
    except ApiError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.reason, entries=None
        )
    await call.services.replica.barrier()
    return DescribeClientQuotasResponse(
        error_code=ErrorCode.NONE,
        error_message="",  # as in Kafka, which never leaves it null
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
                values=[ValueData(key=key, value=limits[key]) for key in sorted(limits)],
            )
            for parts, limits in call.state.security.quotas.items()
            if chosen.matches(read_entity(parts))
        ],
    )
