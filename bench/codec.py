"""How fast are messages read and written, against kio, kafka-python and aiokafka, in one run?

Figures are CPU microseconds, the median of several runs; "x" is how many times slower the other is.
aiokafka speaks older versions only, so its column is the same content in its newest version.

    python bench/codec.py
"""

from __future__ import annotations

import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from aiokafka.protocol.metadata import MetadataResponse_v5
from aiokafka.protocol.produce import ProduceRequest_v8, ProduceResponse_v8
from kafka.protocol import consumer as kp_consumer
from kafka.protocol import metadata as kp_metadata
from kafka.protocol import producer as kp_producer
from kio.serial import entity_reader, entity_writer
from rich.console import Console
from rich.table import Table

from rookery.errors import ErrorCode
from rookery.wire import _twin
from rookery.wire.codec import decode, encode, encode_bytes, table_of
from rookery.wire.message import Message
from rookery.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from rookery.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from rookery.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from rookery.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

RECORDS = os.urandom(16 * 1024)
UUID = bytes(range(16))


def produce_request() -> ProduceRequest:
    """One topic, ten partitions of 16 KiB."""
    data = [PartitionProduceData(index=i, records=RECORDS) for i in range(10)]
    topics = [TopicProduceData(name="topic-a", partition_data=data)]
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)


def produce_response() -> ProduceResponse:
    """The answer to it."""
    answers = [
        PartitionProduceResponse(
            index=i, error_code=ErrorCode.NONE, base_offset=1234567, log_start_offset=0
        )
        for i in range(10)
    ]
    topic = TopicProduceResponse(name="topic-a", partition_responses=answers)
    return ProduceResponse(responses=[topic])


def fetch_request() -> FetchRequest:
    """Ten partitions of one topic."""
    partitions = [
        FetchPartition(partition=i, fetch_offset=123456, partition_max_bytes=1 << 20)
        for i in range(10)
    ]
    topics = [FetchTopic(topic_id=UUID, partitions=partitions)]
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics)


def fetch_response() -> FetchResponse:
    """The same ten partitions with 16 KiB each."""
    partitions = [
        PartitionData(
            partition_index=i,
            error_code=ErrorCode.NONE,
            high_watermark=123456,
            last_stable_offset=123456,
            log_start_offset=0,
            aborted_transactions=None,
            records=RECORDS,
        )
        for i in range(10)
    ]
    topics = [FetchableTopicResponse(topic_id=UUID, partitions=partitions)]
    return FetchResponse(responses=topics)


def metadata_response() -> MetadataResponse:
    """A topic of a thousand partitions with three replicas each."""
    partitions = [
        MetadataResponsePartition(
            error_code=ErrorCode.NONE,
            partition_index=i,
            leader_id=i % 3,
            leader_epoch=5,
            replica_nodes=[0, 1, 2],
            isr_nodes=[0, 1, 2],
            offline_replicas=[],
        )
        for i in range(1000)
    ]
    topic = MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name="topic-a",
        topic_id=UUID,
        is_internal=False,
        partitions=partitions,
    )
    brokers = [MetadataResponseBroker(node_id=i, host="host", port=9092) for i in range(3)]
    return MetadataResponse(brokers=brokers, cluster_id="c", controller_id=0, topics=[topic])


def api_versions_response() -> ApiVersionsResponse:
    """Sixty ranges."""
    keys = [ApiVersion(api_key=i, min_version=0, max_version=9) for i in range(60)]
    return ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=keys)


def cost(function: Callable[[], object], budget: float = 0.25) -> float:
    """Return the median CPU time of a call, in microseconds."""
    start = time.process_time()
    function()
    once = max(time.process_time() - start, 1e-7)
    count = max(3, min(20_000, int(budget / 7 / once)))
    runs = []
    for _ in range(7):
        start = time.process_time()
        for _ in range(count):
            function()
        runs.append((time.process_time() - start) / count * 1e6)
    return statistics.median(runs)


class Kio:
    """kio's reader and writer of one message."""

    def __init__(self, message: Message, file: str, version: int) -> None:
        side = "request" if type(message).__name__.endswith("Request") else "response"
        module = import_module(f"kio.schema.{file}.v{version}.{side}")
        cls = getattr(module, type(message).__name__)
        self.wire = encode_bytes(message, version)
        self._read, self._write = entity_reader(cls), entity_writer(cls)
        self.entity = self.read()
        if self.write() != self.wire:
            raise AssertionError(f"kio writes {file} otherwise than we do")

    def read(self) -> Any:
        """Read the message from its bytes."""
        return self._read(self.wire, 0)[0]

    def write(self) -> bytes:
        """Write the message to bytes."""
        out = io.BytesIO()
        self._write(out, self.entity)
        return out.getvalue()


def read_row(
    message: Message, version: int, kio: Kio, kp: Any, aio: Callable[[], object] | None = None
) -> list[float | None]:
    """Measure reading: ours, our twin, kio, kafka-python, aiokafka."""
    cls, wire = type(message), kio.wire
    table = table_of(cls, version)
    return [
        cost(lambda: decode(cls, version, wire)),
        cost(lambda: _twin.read(table, wire, 0)),
        cost(kio.read),
        cost(lambda: kp.decode(wire, version=version)),
        aio and cost(aio),
    ]


def write_row(
    message: Message,
    version: int,
    kio: Kio,
    kp: Any,
    aio: Callable[[], object] | None = None,
    *,
    joined: bool = False,
) -> list[float | None]:
    """Measure writing: ours, our twin, kio, kafka-python, aiokafka."""
    table = table_of(type(message), version)
    theirs = kp.decode(kio.wire, version=version)
    ours = encode_bytes if joined else encode
    return [
        cost(lambda: ours(message, version)),
        cost(lambda: _twin.write(table, message)),
        cost(kio.write),
        cost(theirs.encode),
        aio and cost(aio),
    ]


IMPORT_ALL = "from rookery.wire.catalog import apis; apis()"
MAKE_TABLES = """
from rookery.wire.codec import table_of
for api in apis().values():
    for version in api.versions:
        table_of(api.request, version), table_of(api.response, version)
"""


def start_up(code: str) -> float:
    """Return the CPU milliseconds that `code` adds to an interpreter's start, bytecode cached."""
    with tempfile.TemporaryDirectory() as cache:
        empty, full = (
            statistics.median([_child(text, cache) for _ in range(9)][2:]) for text in ("", code)
        )
    return (full - empty) * 1000


def _child(code: str, cache: str) -> float:
    tell = f"{code}\nimport time; print(time.process_time())"
    command = [sys.executable, "-X", f"pycache_prefix={cache}", "-c", tell]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, check=True, capture_output=True, env=environment)
    return float(done.stdout)


def rows() -> dict[str, list[float | None]]:
    """Measure everything."""
    produce, answer = produce_request(), produce_response()
    fetch, fetched, metadata = fetch_request(), fetch_response(), metadata_response()
    asked, versions = ApiVersionsRequest(), api_versions_response()
    kio_fetched, kio_metadata = Kio(fetched, "fetch", 16), Kio(metadata, "metadata", 12)
    aio_produce = encode_bytes(produce, 8)
    aio_answer = ProduceResponse_v8.decode(encode_bytes(answer, 8))
    aio_metadata = encode_bytes(metadata, 5)
    aio_metadata_object = MetadataResponse_v5.decode(aio_metadata)
    return {
        "Produce v11 request, read": read_row(
            produce, 11, Kio(produce, "produce", 11), kp_producer.ProduceRequest,
            lambda: ProduceRequest_v8.decode(aio_produce),
        ),
        "Fetch v16 request, read": read_row(
            fetch, 16, Kio(fetch, "fetch", 16), kp_consumer.FetchRequest
        ),
        "ApiVersions v3 request, read": read_row(
            asked, 3, Kio(asked, "api_versions", 3), kp_metadata.ApiVersionsRequest
        ),
        "Fetch v16 response, write in parts": write_row(
            fetched, 16, kio_fetched, kp_consumer.FetchResponse
        ),
        "Fetch v16 response, write joined": write_row(
            fetched, 16, kio_fetched, kp_consumer.FetchResponse, joined=True
        ),
        "Produce v11 response, write": write_row(
            answer, 11, Kio(answer, "produce", 11), kp_producer.ProduceResponse, aio_answer.encode
        ),
        "Metadata v12 response, write": write_row(
            metadata, 12, kio_metadata, kp_metadata.MetadataResponse, aio_metadata_object.encode
        ),
        "Metadata v12 response, read": read_row(
            metadata, 12, kio_metadata, kp_metadata.MetadataResponse,
            lambda: MetadataResponse_v5.decode(aio_metadata),
        ),
        "ApiVersions v3 response, write": write_row(
            versions, 3, Kio(versions, "api_versions", 3), kp_metadata.ApiVersionsResponse
        ),
    }  # fmt: skip


GOALS = {
    "Produce v11 request, read": 1.8,
    "Fetch v16 response, write in parts": 50.0,
    "Metadata v12 response, write": 50.0,
}


def main() -> None:
    """Print the table and the start-up figures."""
    table = Table(title="codec: CPU µs a message (and how many times ours)")
    for name in ("", "rookery", "its twin", "kio", "kafka-python", "aiokafka", "goal vs kio"):
        table.add_column(name, justify="left" if not name else "right")
    for name, (ours, *others) in rows().items():
        if ours is None:
            raise AssertionError(name)
        cells = [
            "-" if other is None else f"{other:,.1f} ({other / ours:,.1f}x)" for other in others
        ]
        table.add_row(name, f"{ours:,.2f}", *cells, _goal(name, others[1], ours))
    console = Console(width=130)
    console.print(table)
    console.print(f"start-up with every API: {start_up(IMPORT_ALL):.0f} ms of CPU (goal: 80)")
    console.print(f"… and every version's table made: {start_up(IMPORT_ALL + MAKE_TABLES):.0f} ms")


def _goal(name: str, kio: float | None, ours: float) -> str:
    goal = GOALS.get(name)
    if goal is None or kio is None:
        return ""
    return f"{goal:g}x {'met' if kio / ours >= goal else 'MISSED'}"


if __name__ == "__main__":
    main()
