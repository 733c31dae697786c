"""PushTelemetry: accepts a client's metrics; `/metrics` exposes the latest values."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Final

from rookery.broker.call import Call, handles
from rookery.broker.telemetry.clientmetrics import find_wanted, properties_of
from rookery.broker.telemetry.pushedmetrics import MAX_BYTES, MAX_POINTS, ClientInstance
from rookery.errors import ApiError, Corrupt, ErrorCode
from rookery.formats.otlp import Point, read_points
from rookery.records.compression import CODECS
from rookery.wire.message import ZERO_UUID, Parts
from rookery.wire.messages.push_telemetry import (
    PUSH_TELEMETRY,
    PushTelemetryRequest,
    PushTelemetryResponse,
)

# The maximum size of a push after decompression.
_OPEN_BYTES: Final = 4 * MAX_BYTES
# Below this size, parsing the metrics takes less time than handing them to a thread.
_THREAD_FROM_BYTES: Final = 4096


@handles(PUSH_TELEMETRY, mutates=False)
async def push_telemetry(call: Call, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Store a client's metrics if they match its subscription and its push interval."""
    services = call.services
    instance_id = request.client_instance_id
    if instance_id == ZERO_UUID:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a push without a client instance id")
    wanted = find_wanted(call.state, properties_of(call, instance_id))
    client = services.telemetry.admit(
        instance_id,
        call.header.client_id or "",
        wanted,
        services.clock.monotonic_ms(),
        is_last=request.terminating,
    )
    try:
        _check(request, wanted.subscription_id(instance_id))
        await _keep(call, client, request)
    except ApiError as error:
        client.last_error = error.code
        raise
    client.last_error = ErrorCode.NONE
    return PushTelemetryResponse(error_code=ErrorCode.NONE)


def _check(request: PushTelemetryRequest, subscription_id: int) -> None:
    if request.subscription_id != subscription_id:
        raise ApiError(
            ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
            f"subscription {request.subscription_id}; the client's is {subscription_id} now",
        )
    if request.compression_type not in CODECS:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression type {request.compression_type}"
        )
    if len(request.metrics) > MAX_BYTES:
        raise ApiError(
            ErrorCode.TELEMETRY_TOO_LARGE,
            f"{len(request.metrics)} bytes of metrics; {MAX_BYTES} is the most",
        )


async def _keep(call: Call, client: ClientInstance, request: PushTelemetryRequest) -> None:
    metrics = request.metrics
    data = b"".join(metrics) if isinstance(metrics, Parts) else bytes(metrics)
    if not data:
        return
    if len(data) < _THREAD_FROM_BYTES and not request.compression_type:
        points = _read(data, request.compression_type)
    else:
        async with call.services.opening:
            points = await asyncio.to_thread(_read, data, request.compression_type)
    call.services.telemetry.keep(client, points)


def _read(data: bytes, compression_type: int) -> list[Point]:
    try:
        opened = CODECS[compression_type].decompress(data, _OPEN_BYTES)
        return list(islice(read_points(opened), MAX_POINTS))
    except (ApiError, Corrupt) as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from error
