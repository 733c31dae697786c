"""An upsert far larger than the driver's memory: `python -m tests.pipeline.bigupsert --help`.

Executors stage changes of random bytes; the driver, which may not take more than a little memory
from then on, commits them twice, the second time over half of the keys. What it took is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import pyarrow as pa

from rookery.pipeline.batch.sparktasks import on_spark
from rookery.spark import session
from rookery.tables.open import open_table
from rookery.tables.port import BatchName, DataFile, TableSpec, Upsert

COLUMNS: dict[str, pa.DataType] = {"id": pa.int64(), "data": pa.binary(), "at": pa.int64()}
SCHEMA = pa.schema(COLUMNS)
ROW_BYTES = 1000
_ROWS = 10_000


@dataclass(frozen=True)
class Stage:
    """What an executor does: write the changes of some keys."""

    spec: TableSpec
    name: BatchName
    every: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage one file for each block of keys."""
        blocks: list[Any] = [row for batch in batches for row in batch.column(0).to_pylist()]
        for block in blocks:
            ids = range(block * _ROWS, (block + 1) * _ROWS, self.every)
            rows = pa.RecordBatch.from_arrays(
                [
                    pa.array(ids, pa.int64()),
                    pa.array([os.urandom(ROW_BYTES) for _ in ids], pa.binary()),
                    pa.array([self.name.batch] * len(ids), pa.int64()),
                ],
                schema=SCHEMA,
            )
            files = open_table(self.spec).stage(self.name, [rows], SCHEMA, f"t{block}")
            texts = [json.dumps([file.path, file.rows, file.bytes]) for file in files]
            yield pa.RecordBatch.from_pydict({"file": pa.array(texts, pa.string())})


def main() -> None:
    """Do it, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000, help="of changes (default 1000)")
    parser.add_argument("--driver-megabytes", type=int, default=256, help="that it may take more")
    args = parser.parse_args()
    blocks = args.megabytes * 1_000_000 // (_ROWS * ROW_BYTES)
    with tempfile.TemporaryDirectory() as folder:
        spec = TableSpec("parquet", str(Path(folder) / "table"))
        spark = session("bigupsert", "local[2]")
        upsert = Upsert(("id",), ("at",))
        open_table(spec)
        spark.range(1).collect()
        _limit(args.driver_megabytes << 20)
        told: dict[str, object] = {"limit_mb": args.driver_megabytes}
        for number, every in enumerate((1, 2)):
            name, begin = BatchName("big", "a1", number), monotonic()
            frame = spark.range(0, blocks, 1, blocks).mapInArrow(
                Stage(spec, name, every), "file string"
            )
            files = [DataFile(*json.loads(row.file)) for row in frame.collect()]
            staged = monotonic()
            assert open_table(spec).commit(name, files, SCHEMA, upsert, on_spark(spark))
            told[f"batch {number}"] = {
                "changes_mb": sum(file.bytes for file in files) // 1_000_000,
                "stage_s": round(staged - begin, 1),
                "commit_s": round(monotonic() - staged, 1),
            }
        snapshot = open_table(spec).snapshot()
        assert snapshot is not None
        live = snapshot.files
        assert sum(file.rows for file in live) == blocks * _ROWS
        counted = spark.read.parquet(*(str(Path(folder) / "table" / file.path) for file in live))
        counts = {row["at"]: row["count"] for row in counted.groupBy("at").count().collect()}
        assert counts == {0: blocks * _ROWS // 2, 1: blocks * _ROWS // 2}, counts
        told["driver_peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000
        print(json.dumps(told))  # noqa: T201 (what it is run for)
        spark.stop()


def _limit(more: int) -> None:
    """Let this process take only so much more memory than it has; Java is another one."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            now = int(line.split()[1]) << 10
            resource.setrlimit(resource.RLIMIT_DATA, (now + more, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main()
