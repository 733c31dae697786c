"""AlterConfigs (key 33): replace all settings of a resource by the ones given.

Whatever is not named goes back to its default, so two users who change different settings undo
each other's work: IncrementalAlterConfigs has taken its place.

Versions:
    1: the broker answers at once and the client does the waiting, when throttled (KIP-219).
    2: flexible.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import Api, Message, i8, i32
from rookery.wire.resources import ConfigResourceName


class AlterConfigsRequest(Message):
    """The new settings of some resources."""

    resources: list[AlterConfigsResource]
    validate_only: bool = False  # check, but change nothing


class AlterConfigsResource(Message):
    """One resource (numbered as in DescribeConfigs) with all its new settings."""

    resource_type: i8
    resource_name: ConfigResourceName
    configs: list[AlterableConfig]


class AlterableConfig(Message):
    """One setting and its new value."""

    name: str
    value: str | None


class AlterConfigsResponse(Message):
    """One result for each resource."""

    throttle_time_ms: i32 = 0
    responses: list[AlterConfigsResourceResponse]


class AlterConfigsResourceResponse(Message):
    """Whether one resource was changed, as a whole."""

    error_code: ErrorCode
    error_message: str | None = None
    resource_type: i8
    resource_name: ConfigResourceName


def refuse(request: AlterConfigsRequest, code: ErrorCode) -> AlterConfigsResponse:
    """Give the code to every resource."""
    return AlterConfigsResponse(
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


ALTER_CONFIGS = Api(
    key=33,
    request=AlterConfigsRequest,
    response=AlterConfigsResponse,
    versions=range(3),
    flexible=2,
    refuse=refuse,
    items=(
        Items("resources(resource_type, resource_name)", "responses(resource_type, resource_name)"),
    ),
)
