"""GetTelemetrySubscriptions (key 71): a client asks which of its metrics the cluster wants.

The answer says what to send with PushTelemetry, how often, and how large (KIP-714).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import ZERO_UUID, Api, Message, Uuid, i8, i32


class GetTelemetrySubscriptionsRequest(Message):
    """The client that asks."""

    client_instance_id: Uuid  # zero in the first call: the broker then draws one


class GetTelemetrySubscriptionsResponse(Message):
    """The metrics to send, the interval and the accepted compression."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    client_instance_id: Uuid
    subscription_id: i32
    accepted_compression_types: list[i8]  # the broker's favourite first
    push_interval_ms: i32
    telemetry_max_bytes: i32
    delta_temporality: bool  # whether to send the change since the last push, not the sum
    requested_metrics: list[str]  # prefixes of names; [] wants none, [""] wants all


def refuse(
    request: GetTelemetrySubscriptionsRequest, code: ErrorCode
) -> GetTelemetrySubscriptionsResponse:
    """Give the code and subscribe to nothing."""
    return GetTelemetrySubscriptionsResponse(
        error_code=code,
        client_instance_id=ZERO_UUID,
        subscription_id=0,
        accepted_compression_types=[],
        push_interval_ms=0,
        telemetry_max_bytes=0,
        delta_temporality=False,
        requested_metrics=[],
    )


GET_TELEMETRY_SUBSCRIPTIONS = Api(
    key=71,
    request=GetTelemetrySubscriptionsRequest,
    response=GetTelemetrySubscriptionsResponse,
    versions=range(1),
    flexible=0,
    refuse=refuse,
)
