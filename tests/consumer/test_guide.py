"""All code of the guide and the examples work on a real Kafka."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rookery.client import Client
from rookery.testing.broker import BrokerProcess
from rookery.testing.kafka import KafkaServer
from rookery.testing.kafkalogs import NOON, Logs, pack_rows, rows

ROOT = Path(__file__).parents[2]
PIECES = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs/guide/consumer.md").read_text(), re.DOTALL
)
BIRDS = ("rook", "jay")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a topic, whose broker does not run any more."""
    folder = tmp_path_factory.mktemp("guide")
    url = f"file://{folder}/store"
    with BrokerProcess(folder / "data", flags=["--store", url]) as broker:
        asyncio.run(_produce(broker.bootstrap))
        broker.stop(60)
    return url


async def _produce(bootstrap: str) -> None:
    async with Client(bootstrap) as client:
        await client.create_topic("birds", partitions=2)
        for number in range(10):
            await client.produce("birds", value=b"%d" % number)


@pytest.fixture(scope="module")
def topic(kafka: KafkaServer) -> str:
    with Logs(kafka.bootstrap) as logs:
        name = logs.create("guide", 2)
        for partition in range(2):
            logs.write(name, partition, rows([NOON + n for n in range(100)]))
        return name


def test_the_guide_has_code() -> None:
    assert len(PIECES) >= 6


@pytest.mark.parametrize("number", range(len(PIECES)))
def test_code_block_of_the_guide_runs(
    kafka: KafkaServer, topic: str, store: str, number: int
) -> None:
    scope: dict[str, Any] = {"bootstrap": kafka.bootstrap, "topic": topic, "store": store}
    code = compile(PIECES[number], f"consumer.md, piece {number}", "exec")
    exec(code, scope)  # noqa: S102 (our own page)


@pytest.fixture(scope="module")
def sightings(kafka: KafkaServer) -> tuple[str, str]:
    """Birds of two partitions every 20 seconds, and the weather every minute."""
    with Logs(kafka.bootstrap) as logs:
        seen, weather = logs.create("sightings", 2), logs.create("weather", 1)
        for partition, bird in enumerate(BIRDS):
            values = [json.dumps({"bird": bird, "count": 1 + n % 2}).encode() for n in range(6)]
            times = [NOON + 20_000 * n + 1000 * partition for n in range(6)]
            logs.append(seen, {partition: _packed(times, values)})
        felt = [json.dumps({"celsius": 7.5 + n}).encode() for n in range(2)]
        logs.append(weather, {0: _packed([NOON - 1, NOON + 60_000], felt)})
    return seen, weather


def _packed(times: list[int], values: list[bytes]) -> bytearray:
    batch = rows(times)
    place = batch.schema.get_field_index("value")
    return pack_rows(batch.set_column(place, "value", pa.array(values, pa.binary())))


def _run(name: str, *args: str) -> list[str]:
    program = [sys.executable, str(ROOT / "examples/consumer" / name), *args]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_query_with_duckdb(kafka: KafkaServer, sightings: tuple[str, str]) -> None:
    assert _run("duckdb_query.py", kafka.bootstrap, sightings[0]) == [
        "jay: 9 seen from 12:00:01 to 12:01:41",
        "rook: 9 seen from 12:00:00 to 12:01:40",
    ]


def test_a_time_series_with_pandas(kafka: KafkaServer, sightings: tuple[str, str]) -> None:
    assert _run("pandas_resample.py", kafka.bootstrap, sightings[0]) == ["12:00: 8", "12:01: 10"]


def test_a_join_with_polars(kafka: KafkaServer, sightings: tuple[str, str]) -> None:
    lines = _run("polars_join.py", kafka.bootstrap, *sightings)

    assert lines[:2] == ["12:00:00 1 rook at 7.5 °C", "12:00:01 1 jay at 7.5 °C"]
    assert lines[-1] == "12:01:41 2 jay at 8.5 °C"
    assert len(lines) == 12


@pytest.mark.parametrize("name", ["duckdb_query.py", "pandas_resample.py", "polars_join.py"])
def test_examples_print_their_usage(name: str) -> None:
    program = [sys.executable, str(ROOT / "examples/consumer" / name)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"usage: {name}")
