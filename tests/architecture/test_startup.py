"""What a start loads, and how long it takes compared with an empty interpreter."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


def loaded_by(code: str) -> set[str]:
    tell = f"{code}\nimport sys, json; json.dump(sorted(sys.modules), sys.stdout)"
    done = subprocess.run([sys.executable, "-c", tell], check=True, capture_output=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        ("import rookery", {"asyncio", "pyarrow", "rookery.wire.message"}),
        ("import rookery.client, rookery.consumer, rookery.decode", {"asyncio", "pyarrow"}),
        ("import rookery.spark, rookery.pipeline, rookery.jobs", {"asyncio", "pyarrow", "pyspark"}),
        ("import rookery.tables, rookery.testing", {"asyncio", "pyarrow", "rookery.broker"}),
        ("from rookery import Error", {"asyncio", "pyarrow", "rookery.consumer"}),
        ("from rookery.wire.catalog import apis; apis()", {"asyncio", "pyarrow", "dataclasses"}),
        (
            "import rookery.records.recordcodec",
            {"asyncio", "pyarrow", "lz4", "zstandard", "cramjam"},
        ),
        ("import rookery.net.listener", {"pyarrow", "rookery.client"}),
        ("import rookery.cli.main", {"pyarrow", "asyncio", "rich"}),
    ],
)
def test_heavy_modules_are_not_imported_eagerly(code: str, unwanted: set[str]) -> None:
    assert loaded_by(code) & unwanted == set()


def test_importing_one_message_does_not_import_the_others() -> None:
    loaded = loaded_by("import rookery.wire.messages.heartbeat")
    assert {name for name in loaded if name.startswith("rookery.wire.messages.")} == {
        "rookery.wire.messages.heartbeat"
    }
