"""Pushed metrics that expand far beyond their size: every client may push, without any rule."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest
from kio.schema.get_telemetry_subscriptions.v0.response import GetTelemetrySubscriptionsResponse
from kio.schema.push_telemetry.v0.request import PushTelemetryRequest
from kio.schema.push_telemetry.v0.response import PushTelemetryResponse
from kio.static.primitive import i8

from tests.abuse import batches
from tests.abuse.attack import Attacker
from tests.abuse.batches import GZIP, LZ4, MEBIBYTE, SNAPPY, ZSTD
from tests.abuse.targets import Target
from tests.abuse.topics import ask_on

pytestmark = pytest.mark.parametrize("target", ["plaintext", "member", "guest"], indirect=True)

CODECS = {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
MAX_BYTES = MEBIBYTE
"""The size of the largest push."""
# Far more than a push may become, which is 4 MiB, and what the allocator needs meanwhile.
GROWTH_BYTES = 64 * MEBIBYTE


@cache
def bomb(codec: str) -> bytes:
    """Return as many zeros as a push can hold; snappy and LZ4 pack less well than the others."""
    match codec:
        case "gzip":
            return batches.gzip_bomb(512 * MEBIBYTE)
        case "zstd":
            return batches.zstd_bomb(16 * 1024 * MEBIBYTE)
        case "lz4":
            return batches.lz4_bomb(192 * MEBIBYTE)
        case _:
            return batches.snappy_bomb(16 * MEBIBYTE)


def push(line: Attacker, given: Any, codec: int, metrics: bytes) -> ErrorCode:
    """Push metrics for a subscription; return what the broker says."""
    request = PushTelemetryRequest(
        client_instance_id=given.client_instance_id,
        subscription_id=given.subscription_id,
        terminating=False,
        compression_type=i8(codec),
        metrics=metrics,
    )
    code: ErrorCode = ask_on(line, request, PushTelemetryResponse).error_code
    return code


@pytest.mark.parametrize("codec", CODECS)
def test_pushed_decompression_bomb_is_not_expanded(target: Target, codec: str) -> None:
    assert len(bomb(codec)) <= MAX_BYTES
    with Attacker(target.door) as line:
        wanted = GetTelemetrySubscriptionsRequest(client_instance_id=None)
        given = ask_on(line, wanted, GetTelemetrySubscriptionsResponse)
        before = target.victim.forget_peak()

        assert push(line, given, CODECS[codec], bomb(codec)) is ErrorCode.invalid_record

        assert target.victim.peak() - before < GROWTH_BYTES
