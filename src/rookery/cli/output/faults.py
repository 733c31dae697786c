"""Faults of the log as `rookery fsck` and `rookery recover` print them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rookery.log.check.fault import LogFault
from rookery.store.wrappers import full_key


def with_full_keys(faults: Sequence[LogFault], namespace: str) -> list[LogFault]:
    """Name objects as they are called in the store."""
    return [replace(fault, key=full_key(namespace, fault.key)) for fault in faults]


def fault_text(fault: LogFault) -> Iterator[str]:
    """Describe a fault, and its remedy."""
    yield f"{fault.kind:<10} {fault.key}"
    where = ""
    if fault.where is not None:
        topic, partition, base, end = fault.where
        where = f"topic {topic}, partition {partition}"
        where += f", offsets {base} to {end - 1}: " if end > base else ": "
    yield f"{'':<10} {where}{fault.text}"
    yield f"{'':<10} → {fault.advice}"
