"""PushTelemetry (key 72): a client sends its metrics to the cluster (KIP-714)."""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import Api, Message, Records, Uuid, i8, i32


class PushTelemetryRequest(Message):
    """Metrics as the subscription asked for them."""

    client_instance_id: Uuid
    subscription_id: i32
    terminating: bool  # the client's last words before it closes
    compression_type: i8  # 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd
    # OpenTelemetry's MetricsData. Plain bytes to Kafka; a view here, since it can be a megabyte.
    metrics: Records


class PushTelemetryResponse(Message):
    """Whether the metrics were taken."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode


def refuse(request: PushTelemetryRequest, code: ErrorCode) -> PushTelemetryResponse:
    """Give the code."""
    return PushTelemetryResponse(error_code=code)


PUSH_TELEMETRY = Api(
    key=72,
    request=PushTelemetryRequest,
    response=PushTelemetryResponse,
    versions=range(1),
    flexible=0,
    refuse=refuse,
)
