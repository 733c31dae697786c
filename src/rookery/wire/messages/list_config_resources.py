"""ListConfigResources (key 74): list the things that have a configuration of their own.

Versions:
    0 lists client metrics subscriptions only, and was named ListClientMetricsResources (KIP-714).
    1 lists resources of any type (KIP-1142).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import Api, Message, field, i8, i32
from rookery.wire.resources import ConfigResourceName


class ListConfigResourcesRequest(Message):
    """Which types of resource to list."""

    # 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group; none: all that can be listed
    resource_types: list[i8] = field(since=1, factory=list)


class ListConfigResourcesResponse(Message):
    """The resources found."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    config_resources: list[ConfigResource]


class ConfigResource(Message):
    """One resource; what its name means depends on its type."""

    resource_name: ConfigResourceName
    resource_type: i8 = field(since=1, default=16)


def refuse(request: ListConfigResourcesRequest, code: ErrorCode) -> ListConfigResourcesResponse:
    """Give the code and list nothing."""
    return ListConfigResourcesResponse(error_code=code, config_resources=[])


LIST_CONFIG_RESOURCES = Api(
    key=74,
    request=ListConfigResourcesRequest,
    response=ListConfigResourcesResponse,
    versions=range(2),
    flexible=0,
    refuse=refuse,
)
