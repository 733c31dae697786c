"""Per-API metering: durations, requests in flight, and the errors in answers."""

from __future__ import annotations

import pytest

from rookery.errors import ErrorCode
from rookery.metrics import Registry
from rookery.service.meter import ApiMeter, RequestMetrics
from rookery.wire.messages.api_versions import API_VERSIONS, ApiVersionsResponse
from rookery.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)


@pytest.fixture
def metrics() -> RequestMetrics:
    return RequestMetrics("test", Registry())


def test_error_of_every_partition_is_counted(metrics: RequestMetrics) -> None:
    meter = ApiMeter(metrics, PRODUCE)
    parts = [
        PartitionProduceResponse(index=index, error_code=code, base_offset=-1)
        for index, code in enumerate((ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE))
    ]
    topics = [TopicProduceResponse(name=name, partition_responses=parts) for name in "ab"]

    meter.finish(meter.start(), ProduceResponse(responses=topics))

    assert metrics.errors.labels("Produce", "CORRUPT_MESSAGE").value == 2


def test_error_of_the_whole_answer_is_counted(metrics: RequestMetrics) -> None:
    meter = ApiMeter(metrics, API_VERSIONS)
    answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])

    meter.finish(meter.start(), answer)
    meter.finish(meter.start(), answer)

    assert metrics.errors.labels("ApiVersions", "UNSUPPORTED_VERSION").value == 2


def test_errors_at_every_depth_of_a_refusal_are_counted(metrics: RequestMetrics) -> None:
    meter = ApiMeter(metrics, METADATA)
    topics = [MetadataRequestTopic(name=name) for name in ("a", "b")]

    for request in (MetadataRequest(topics=None), MetadataRequest(topics=topics)):
        meter.finish(meter.start(), METADATA.refuse(request, ErrorCode.REQUEST_TIMED_OUT))

    # One for each answer, and one for each of the two topics.
    assert metrics.errors.labels("Metadata", "REQUEST_TIMED_OUT").value == 4


def test_duration_and_requests_in_flight_are_counted(metrics: RequestMetrics) -> None:
    meter = ApiMeter(metrics, PRODUCE)

    started = meter.start()
    during = metrics.in_flight.value
    meter.finish(started, None)

    assert (during, metrics.in_flight.value) == (1, 0)
    assert metrics.seconds.labels("Produce").count == 1


def test_metric_names_begin_with_the_server() -> None:
    registry = Registry()
    RequestMetrics("proxy", registry)
    names = {line.split()[2] for line in registry.expose().splitlines() if "# TYPE" in line}
    assert names == {
        "rookery_proxy_request_seconds",
        "rookery_proxy_errors_total",
        "rookery_proxy_requests_inflight",
    }
