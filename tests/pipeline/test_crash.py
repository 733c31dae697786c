"""A driver that is killed before any of its steps and run again loses and repeats nothing."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.pipeline.crashjob import KEYS, RECORDS, change, value
from tests.tables.independent import rows_of

STEPS = [
    "stage",
    "manifest",
    "commit bronze parquet /bronze",
    "commit silver iceberg /silver-iceberg",
    "commit silver delta /silver-delta",
    "commit silver duckdb /silver.duckdb silver",
    "commit silver parquet /silver-parquet",
    "commit dead-letters parquet /dead",
    "done",
]
SILVER = {
    "iceberg": "silver-iceberg",
    "delta": "silver-delta",
    "duckdb": "silver.duckdb",
    "parquet": "silver-parquet",
}


def digest(data: object) -> str:
    assert isinstance(data, bytes)
    return hashlib.sha256(data).hexdigest()


def drive(folder: Path, step: str = "", mode: str = "append") -> int:
    command = [sys.executable, "-m", "tests.pipeline.crashjob", str(folder), step, mode]
    done = subprocess.run(command, capture_output=True, timeout=240, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode


@pytest.mark.usefixtures("own_victim")
@pytest.mark.timeout(600)
def test_driver_can_die_before_every_step(tmp_path: Path) -> None:
    for step in STEPS:
        assert drive(tmp_path, step) == -signal.SIGKILL, f"it did not come to {step!r}"
    assert drive(tmp_path) == 0

    sent = [(p, o, value(p, o)) for p in (0, 1) for o in range(RECORDS)]
    bronze = rows_of(SimpleNamespace(format="parquet", location=tmp_path / "bronze", name=""))
    written = Counter((row[2], row[3], row[4], digest(row[1])) for row in bronze)
    assert written == Counter(("birds", p, o, digest(data)) for p, o, data in sent)
    good = Counter((p, o) for p, o, data in sent if data.startswith(b'{"'))
    for kind, place in SILVER.items():
        name = "silver" if kind == "duckdb" else ""
        rows = rows_of(SimpleNamespace(format=kind, location=tmp_path / place, name=name))
        # id, name, and where it came from: topic, partition, offset.
        assert Counter((row[3], row[4]) for row in rows) == good, kind
        assert all(row[0] == row[3] * RECORDS + row[4] for row in rows), kind  # type: ignore[operator] # numbers
    dead = rows_of(SimpleNamespace(format="parquet", location=tmp_path / "dead", name=""))
    assert Counter((row[3], row[4]) for row in dead) == Counter(
        (p, o) for p, o, data in sent if not data.startswith(b'{"')
    )


UPSERT_STEPS = ["_Split", "_Rewrite", STEPS[4], "_LatestRows", "done"]


@pytest.mark.usefixtures("own_victim")
@pytest.mark.timeout(600)
def test_driver_can_die_during_an_upsert(tmp_path: Path) -> None:
    for step in UPSERT_STEPS:
        assert drive(tmp_path, step, "upsert") == -signal.SIGKILL, f"it did not come to {step!r}"
    assert drive(tmp_path, mode="upsert") == 0

    last: dict[int, tuple[object, ...]] = {}
    for partition in (0, 1):
        for offset in range(RECORDS):
            if change(partition, offset).endswith(b"}"):
                key = partition * KEYS + offset % KEYS
                last[key] = (key, f"bird at {offset}", "birds", partition, offset)
    for kind, place in SILVER.items():
        name = "silver" if kind == "duckdb" else ""
        rows = rows_of(SimpleNamespace(format=kind, location=tmp_path / place, name=name))
        assert [row[:5] for row in rows] == [last[key] for key in sorted(last)], kind
