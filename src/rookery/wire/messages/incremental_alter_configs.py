"""IncrementalAlterConfigs (key 44): change single settings and leave the others alone (KIP-339).

Versions:
    1: flexible.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import Api, Message, i8, i32
from rookery.wire.resources import ConfigResourceName


class IncrementalAlterConfigsRequest(Message):
    """The changes to some resources."""

    resources: list[AlterConfigsResource]
    validate_only: bool = False  # check, but change nothing


class AlterConfigsResource(Message):
    """One resource (numbered as in DescribeConfigs); all its changes are made, or none."""

    resource_type: i8
    resource_name: ConfigResourceName
    configs: list[AlterableConfig]


class AlterableConfig(Message):
    """One setting and what to do with it."""

    name: str
    # 0 set, 1 delete (back to the default), 2 append to a list, 3 subtract from a list
    config_operation: i8
    value: str | None  # null to delete


class IncrementalAlterConfigsResponse(Message):
    """One result for each resource."""

    throttle_time_ms: i32 = 0
    responses: list[AlterConfigsResourceResponse]


class AlterConfigsResourceResponse(Message):
    """Whether one resource was changed."""

    error_code: ErrorCode
    error_message: str | None = None
    resource_type: i8
    resource_name: ConfigResourceName


def refuse(
    request: IncrementalAlterConfigsRequest, code: ErrorCode
) -> IncrementalAlterConfigsResponse:
    """Give the code to every resource."""
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=code.sentence,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


INCREMENTAL_ALTER_CONFIGS = Api(
    key=44,
    request=IncrementalAlterConfigsRequest,
    response=IncrementalAlterConfigsResponse,
    versions=range(2),
    flexible=1,
    refuse=refuse,
    items=(
        Items("resources(resource_type, resource_name)", "responses(resource_type, resource_name)"),
    ),
)
