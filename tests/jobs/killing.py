"""`rookery job` as a process of its own, which can be killed with all that belongs to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

_SECONDS = 300
# A short run is over before the optimizing compiler has paid for itself.
_QUICK = (
    *("--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
    *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"),
)


def _start(arguments: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rookery.cli.main", "job", *arguments, "--json", *_QUICK]
    # A session of its own: Spark's Java and its workers are to die with it.
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        start_new_session=True,
    )  # fmt: skip


def run_job(arguments: list[str]) -> dict[str, Any]:
    """Run a job to its end; return its report."""
    process = _start(arguments)
    out, _ = process.communicate(timeout=_SECONDS)
    lines = [json.loads(line) for line in out.splitlines()]
    assert process.returncode == 0, lines
    assert lines[-1]["event"] in {"report", "plan"}
    report: dict[str, Any] = lines[-1]
    return report


def kill_after_progress(arguments: list[str], steps: int) -> None:
    """Run a job, and kill all of it when it has reported a given number of steps."""
    process = _start(arguments)
    assert process.stdout is not None
    try:
        told = 0
        while told < steps:
            line = process.stdout.readline()
            assert line, f"it ended by itself: {process.wait(_SECONDS)}"
            event = json.loads(line)
            assert event["event"] == "progress", "it was done before it could be killed"
            told += 1
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=_SECONDS)
