"""ListConfigResources: the names of topics, brokers, groups and client metrics (KIP-1142)."""

from __future__ import annotations

from typing import Final

from rookery.broker.call import Call, handles
from rookery.cluster.resources import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    list_configured,
)
from rookery.errors import ApiError, ErrorCode
from rookery.wire.messages.list_config_resources import (
    LIST_CONFIG_RESOURCES,
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

# Kafka's resource types. Loggers (8) are accepted, but there are none to list.
_KNOWN: Final = frozenset(
    {TOPIC_RESOURCE, BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE, 8}
)


@handles(
    LIST_CONFIG_RESOURCES,
    versions=range(2),
    mutates=False,
)
async def list_config_resources(
    call: Call, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """List the resources that have settings; version 0 lists client metrics only."""
    unknown = set(request.resource_types) - _KNOWN
    if unknown:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION, f"there are no resources of type {min(unknown)}"
        )
    await call.services.replica.barrier()
    wanted = set(request.resource_types) or _KNOWN
    if call.version == 0:
        wanted = {CLIENT_METRICS_RESOURCE}
    names = {
        CLIENT_METRICS_RESOURCE: list_configured(
            call.state.broker_configs, CLIENT_METRICS_RESOURCE
        ),
        TOPIC_RESOURCE: sorted(call.state.topics.by_name),
        BROKER_RESOURCE: [str(node) for node in call.state.brokers.nodes],
        GROUP_RESOURCE: list_configured(call.state.broker_configs, GROUP_RESOURCE),
    }
    return ListConfigResourcesResponse(
        error_code=ErrorCode.NONE,
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in names
            if kind in wanted
            for name in names[kind]
        ],
    )
