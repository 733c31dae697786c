"""DescribeConfigs (key 32): read the settings of topics, brokers, groups and the like.

A resource type is 2 (topic), 4 (broker), 8 (a broker's loggers), 16 (client metrics) or 32 (group).
A broker is named by its id as text; an empty name stands for the default of all brokers.

Versions:
    1: adds the source of each value and its synonyms, instead of "is it the default" (KIP-226).
    2: the broker answers at once and the client does the waiting, when throttled (KIP-219).
    3: adds types and documentation (KIP-569).
    4: flexible.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import Api, Message, field, i8, i32
from rookery.wire.resources import ConfigResourceName


class DescribeConfigsRequest(Message):
    """The resources to read, and how much to report of each setting."""

    resources: list[DescribeConfigsResource]
    include_synonyms: bool = field(since=1, default=False)
    include_documentation: bool = field(since=3, default=False)


class DescribeConfigsResource(Message):
    """One resource, and which of its settings are wanted."""

    resource_type: i8
    resource_name: ConfigResourceName
    configuration_keys: list[str] | None = None  # null: all


class DescribeConfigsResponse(Message):
    """The settings of each resource."""

    throttle_time_ms: i32 = 0
    results: list[DescribeConfigsResult]


class DescribeConfigsResult(Message):
    """One resource with its settings."""

    error_code: ErrorCode
    error_message: str | None = None
    resource_type: i8
    resource_name: ConfigResourceName
    configs: list[DescribeConfigsResourceResult]


class DescribeConfigsResourceResult(Message):
    """One setting as it is in force.

    The source is where the value comes from: 1 the topic, 2 the broker, 3 the default of all
    brokers, 4 the broker's file, 5 built in, 6 a logger, 7 client metrics, 8 the group.
    """

    name: str
    value: str | None  # null if sensitive
    read_only: bool
    config_source: i8 = field(since=1, default=-1)
    is_default: bool = field(until=0, default=False)
    is_sensitive: bool
    synonyms: list[DescribeConfigsSynonym] = field(since=1, factory=list)
    # 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password
    config_type: i8 = field(since=3, default=0)
    documentation: str | None = field(since=3, default=None)


class DescribeConfigsSynonym(Message):
    """Another place where the same setting could be made; the first one with a value wins."""

    name: str
    value: str | None
    source: i8


def refuse(request: DescribeConfigsRequest, code: ErrorCode) -> DescribeConfigsResponse:
    """Give the code to every resource, with no settings."""
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=code,
                error_message=code.sentence,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[],
            )
            for resource in request.resources
        ]
    )


DESCRIBE_CONFIGS = Api(
    key=32,
    request=DescribeConfigsRequest,
    response=DescribeConfigsResponse,
    versions=range(5),
    flexible=4,
    refuse=refuse,
    items=(
        Items("resources(resource_type, resource_name)", "results(resource_type, resource_name)"),
    ),
)
