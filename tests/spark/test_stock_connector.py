"""Spark's own Kafka connector, from Maven Central, against our broker: batch and streaming."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rookery.errors import Unavailable
from rookery.testing.broker import BrokerProcess
from rookery.testing.jars import CONNECTOR, bundle_jars
from tests.clients.peers import new_topic
from tests.spark.stockjob import ROWS

_PARTITIONS = 3


@pytest.fixture(scope="module")
def jars() -> str:
    try:
        folder = bundle_jars(CONNECTOR)
    except Unavailable as error:
        pytest.fail(f"Maven Central cannot be reached, so the connector was not tried: {error}")
    return ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("own_spark")
def test_stock_connector_writes_and_reads_batches_and_streams(jars: str, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        topics = [new_topic(broker.bootstrap, partitions=_PARTITIONS) for _ in range(2)]
        job = [sys.executable, "-m", "tests.spark.stockjob", broker.bootstrap, jars]
        job += [str(tmp_path), *topics]
        done = subprocess.run(job, capture_output=True, text=True, timeout=540, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads((tmp_path / "answer.json").read_text())
    expected = {(str(n % 7), f"value {n}", str(n)) for n in range(2 * ROWS)}
    for topic in topics:
        rows = answer[topic]
        assert len(rows) == 2 * ROWS
        assert {(key, value, header) for _, _, key, value, header in rows} == expected
        # Each partition's offsets are counted without a gap.
        places = sorted((partition, offset) for partition, offset, *_ in rows)
        counts = [sum(1 for p, _ in places if p == index) for index in range(_PARTITIONS)]
        assert places == [(p, offset) for p, count in enumerate(counts) for offset in range(count)]
