"""The examples run and give the documented results."""

from __future__ import annotations

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.pipeline.logs import Log, Message

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipeline"


def example(name: str) -> Any:
    spec = spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sighting(bird: str, minute: int, **more: object) -> Message:
    at = f"2026-01-01T{10 + minute // 60}:{minute % 60:02}:00Z"
    return Message(json.dumps({"bird": bird, "at": at, **more}).encode(), bird.encode())


def test_examples_run(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    seen = [("rook", 1), ("rook", 2), ("jay", 12), ("rook", 13), ("owl", 58)]
    log.write("sightings", [sighting(*sight) for sight in seen])
    log.write("rings", [sighting("rook", 30, ring="R1"), sighting("jay", 120, ring="J1")])
    # What comes long after lets windows end.
    log.write("sightings", [sighting("wren", 300), Message(b"{broken")])

    counts = example("windowed_aggregate").run(spark, log.store, tmp_path / "windowed")
    assert counts == [
        ("10:00", "rook", 2),
        ("10:10", "jay", 1),
        ("10:10", "rook", 1),
        ("10:50", "owl", 1),
    ]

    birds = example("topic_to_iceberg").run(spark, log.store, tmp_path / "iceberg")
    assert birds == [("jay", 1), ("owl", 1), ("rook", 3), ("wren", 1)]

    log.write("ringed", [Message(b"R0", b"before")], partitions=1)
    rung = example("stream_stream_join").run(spark, log.store, tmp_path / "join")
    assert rung == [("before", "R0"), ("rook", "R1"), ("rook", "R1"), ("rook", "R1")]
