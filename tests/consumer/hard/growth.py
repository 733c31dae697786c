"""Reads a topic in a separate process and prints the growth of its memory, as JSON.

python -m tests.consumer.hard.growth BOOTSTRAP TOPIC MEMORY MAX_BATCH_BYTES BATCH_BYTES
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from rookery.consumer.api import read
from rookery.consumer.faults import RecordTooLarge


def main(bootstrap: str, topic: str, memory: int, max_batch_bytes: int, batch_bytes: int) -> None:
    """Read it, up to an error."""
    pa.array([b""], pa.binary())  # imports what it imports before the measurement
    before = memory_of("VmRSS")
    report: dict[str, Any] = {"rows": 0, "largest": 0, "largest_of_many": 0, "error": None}
    try:
        with read(
            bootstrap,
            topic,
            memory=memory,
            max_batch_bytes=max_batch_bytes,
            batch_bytes=batch_bytes,
        ) as stream:
            for batch in stream:
                report["rows"] += batch.num_rows
                report["largest"] = max(report["largest"], batch.nbytes)
                if batch.num_rows > 1:
                    report["largest_of_many"] = max(report["largest_of_many"], batch.nbytes)
    except RecordTooLarge as error:
        report["error"] = [error.topic, error.partition, error.offset]
    report["grown"] = memory_of("VmHWM") - before
    sys.stdout.write(json.dumps(report))


def memory_of(name: str) -> int:
    """Return the system's figures of this process; `getrusage` would count the parent's, too."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if name in line]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
