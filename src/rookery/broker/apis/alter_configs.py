"""AlterConfigs: replaces all settings of a resource; settings that are not given are removed."""

from __future__ import annotations

from collections.abc import Mapping

from rookery.broker.call import Call, handles
from rookery.broker.config.alteration import alter
from rookery.errors import ApiError, ErrorCode
from rookery.wire.messages.alter_configs import (
    ALTER_CONFIGS,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


@handles(
    ALTER_CONFIGS,
    versions=range(3),
    mutates=True,
)
async def alter_configs(call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replace all settings of topics, groups, client metrics, or of all brokers."""
    results = await alter(
        call, request.resources, _replace_configs, validate_only=request.validate_only
    )
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=result.error,
                error_message=result.text,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, result in zip(request.resources, results, strict=True)
        ]
    )


def _replace_configs(
    resource: AlterConfigsResource, _now: Mapping[str, str]
) -> dict[str, str | None]:
    values = {config.name: config.value for config in resource.configs}
    if len(values) < len(resource.configs):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a setting is given more than once")
    missing = [name for name, value in values.items() if value is None]
    if missing:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{missing[0]} has no value")
    return values
