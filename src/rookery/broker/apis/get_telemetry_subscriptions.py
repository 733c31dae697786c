"""GetTelemetrySubscriptions: the client metrics to push, and the push interval."""

from __future__ import annotations

from typing import Final

from rookery.broker.call import Call, handles
from rookery.broker.telemetry.clientmetrics import find_wanted, properties_of
from rookery.broker.telemetry.pushedmetrics import MAX_BYTES
from rookery.errors import ErrorCode
from rookery.model.uuid import random_uuid
from rookery.records.compression import GZIP, LZ4, SNAPPY, ZSTD
from rookery.wire.message import ZERO_UUID
from rookery.wire.messages.get_telemetry_subscriptions import (
    GET_TELEMETRY_SUBSCRIPTIONS,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

_COMPRESSION: Final = tuple(codec.id for codec in (ZSTD, LZ4, GZIP, SNAPPY))


@handles(GET_TELEMETRY_SUBSCRIPTIONS, mutates=False)
def get_telemetry_subscriptions(
    call: Call, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Return the union of all metric subscriptions that match the client."""
    services = call.services
    instance_id = request.client_instance_id
    if instance_id == ZERO_UUID:
        instance_id = random_uuid(services.random.token)
    wanted = find_wanted(call.state, properties_of(call, instance_id))
    services.telemetry.ask(
        instance_id, call.header.client_id or "", wanted, services.clock.monotonic_ms()
    )
    return GetTelemetrySubscriptionsResponse(
        error_code=ErrorCode.NONE,
        client_instance_id=instance_id,
        subscription_id=wanted.subscription_id(instance_id),
        accepted_compression_types=list(_COMPRESSION),
        push_interval_ms=wanted.interval_ms,
        telemetry_max_bytes=MAX_BYTES,
        delta_temporality=True,
        requested_metrics=wanted.metrics,
    )
