"""Metrics of this process under the names that Prometheus' own clients use for them."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Final

from rookery import metrics
from rookery.metrics import MetricReading

_PROC: Final = Path("/proc/self")

_CPU: Final = metrics.counter(
    "process_cpu_seconds_total", "CPU time of this process, user and system."
)
_RESIDENT: Final = metrics.gauge("process_resident_memory_bytes", "Resident memory.")
_VIRTUAL: Final = metrics.gauge("process_virtual_memory_bytes", "Virtual memory.")
_OPEN_FDS: Final = metrics.gauge("process_open_fds", "Open file descriptors.")
_MAX_FDS: Final = metrics.gauge("process_max_fds", "The most file descriptors it may have.")
_START: Final = metrics.gauge("process_start_time_seconds", "When it started, in Unix time.")


def process_numbers() -> list[MetricReading]:
    """Return the metrics and their readers; without /proc, only those that do not need it."""
    numbers: list[MetricReading] = [
        (_CPU, _cpu_seconds),
        (_MAX_FDS, lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    ]
    if not (_PROC / "stat").exists():
        return numbers
    return [
        *numbers,
        (_RESIDENT, lambda: _pages(1)),
        (_VIRTUAL, lambda: _pages(0)),
        (_OPEN_FDS, lambda: sum(1 for _ in (_PROC / "fd").iterdir())),
        (_START, _start_seconds),
    ]


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


def _pages(field: int) -> float:
    return int((_PROC / "statm").read_text().split()[field]) * resource.getpagesize()


def _start_seconds() -> float:
    # The command name in parentheses can contain spaces; the start is the 20th field after it.
    ticks = int((_PROC / "stat").read_text().rpartition(")")[2].split()[19])
    lines = Path("/proc/stat").read_text().splitlines()
    booted = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
    return booted + ticks / os.sysconf("SC_CLK_TCK")
