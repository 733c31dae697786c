"""`rookery perf`: measures producing, consuming and end-to-end latency."""

from __future__ import annotations

from rookery.cli.command import CommandFamily

COMMAND = CommandFamily(
    summary="Measure the throughput and latency of any Kafka cluster.",
    example="rookery perf produce birds --records 1M --size 100",
)
