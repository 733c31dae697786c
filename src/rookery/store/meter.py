"""Metrics of stores."""

from __future__ import annotations

from typing import Final

from rookery import metrics

REQUESTS: Final = metrics.counters(
    "rookery_store_requests_total", "Requests to the store by kind, without retries.", ("kind",)
)
ERRORS: Final = metrics.counters(
    "rookery_store_errors_total", "Requests to the store that failed.", ("kind", "error")
)
REQUEST_SECONDS: Final = metrics.histograms(
    "rookery_store_request_seconds", "How long requests took, with their retries.", ("kind",)
)
WRITTEN_BYTES: Final = metrics.counter(
    "rookery_store_written_bytes_total", "Bytes of objects that were created or replaced."
)
READ_BYTES: Final = metrics.counter(
    "rookery_store_read_bytes_total", "Bytes of objects that were read."
)
COST_DOLLARS: Final = metrics.gauge(
    "rookery_store_cost_dollars", "Cost of all requests since the start, by the price table."
)
COST_PER_GB: Final = metrics.gauge(
    "rookery_store_cost_dollars_per_gb", "Cost of all requests per gigabyte (10^9 bytes) written."
)
RETRIES: Final = metrics.counters(
    "rookery_store_retries_total", "Repeated requests, by kind.", ("kind",)
)
