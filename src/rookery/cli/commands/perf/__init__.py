"""`rookery perf`: how fast a cluster takes records, gives them back, and hands them on."""

from __future__ import annotations

from rookery.cli.command import CommandFamily

COMMAND = CommandFamily(
    summary="Measure producing, consuming and end-to-end latency on any Kafka.",
    example="rookery perf produce birds --records 1M --size 100",
)
