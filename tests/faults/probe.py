"""Single requests to a broker process, its health, and its metrics."""

from __future__ import annotations

import json
import socket
from http.client import HTTPConnection
from typing import Any, Final

from rookery.errors import ErrorCode
from rookery.testing.broker import BrokerProcess
from rookery.testing.ports import HOST
from rookery.testing.wait import PATIENCE_SECONDS
from rookery.wire.codec import read_response, request_frame
from rookery.wire.messages.fetch import FETCH, PartitionData
from rookery.wire.messages.produce import PRODUCE, PartitionProduceResponse
from tests.broker.raw import batch, fetch_request, produce_request

LARGE: Final = 200_000
"""Goes to the journal first."""


def exchange(port: int, frame: bytes, within: float = PATIENCE_SECONDS) -> bytes:
    """Send a frame on a connection of its own and return the answer, without its size."""
    with socket.create_connection((HOST, port), within) as connection:
        connection.sendall(frame)
        with connection.makefile("rb") as stream:
            size = int.from_bytes(stream.read(4), "big")
            return stream.read(size)


def produce(
    port: int,
    topic: str,
    value: bytes,
    *,
    correlation: int = 1,
    timeout_ms: int = 20_000,
    within: float = PATIENCE_SECONDS,
) -> PartitionProduceResponse:
    """Produce one record with acks=all to partition 0."""
    request = produce_request(topic, {0: batch(value)})
    request.timeout_ms = timeout_ms
    frame = b"".join(request_frame(PRODUCE, 9, correlation, "probe", request))
    response = read_response(PRODUCE, 9, exchange(port, frame, within))
    [answer] = response.responses[0].partition_responses
    return answer


def fetch(port: int, topic: str, offset: int, **options: Any) -> PartitionData:
    """Fetch partition 0 from an offset on."""
    request = fetch_request({(topic, 0): offset}, **options)
    frame = b"".join(request_frame(FETCH, 12, 1, "probe", request))
    response = read_response(FETCH, 12, exchange(port, frame))
    assert response.error_code is ErrorCode.NONE
    [answer] = response.responses[0].partitions
    return answer


def problems(broker: BrokerProcess) -> dict[str, str]:
    """Return why the broker is not ready; nothing if it is."""
    connection = HTTPConnection(broker.http[0], timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", "/health/ready")
        answer = connection.getresponse()
        told: dict[str, Any] = json.loads(answer.read())
    finally:
        connection.close()
    assert told["ok"] is (answer.status == 200)
    problems: dict[str, str] = told.get("problems", {})
    return problems


def metrics(broker: BrokerProcess, worker: int = 0) -> dict[str, float]:
    """Return the metrics of the broker or of one of its workers, by their names with labels."""
    connection = HTTPConnection(broker.http[worker], timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    samples = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in samples if name}
