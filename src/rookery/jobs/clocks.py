"""Checks whether this host's clock can be trusted to decide retention.

A host whose clock is eight days ahead would delete everything with a retention of seven days. So a
job compares its clock with others before it deletes anything, as brokers do. It refuses to start if
they differ by more than ten seconds:

- with the live brokers: with the median of their last stamps. A live broker has written one within
  the last seconds. If the stamps are older, the job waits as long as a broker may be silent before
  the others consider it dead.
- with the last entry of the cluster log, if no broker is live. The log may have been idle, so a
  clock that is ahead of the entry proves nothing. But a correct clock is never earlier than it.

Tasks get the time from the driver, so the clocks of executors have no influence.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from statistics import median_low
from typing import Final

from rookery.clock import Time
from rookery.cluster.entry import read_entry
from rookery.cluster.port import EntriesTrimmed
from rookery.direct.log import DirectLog
from rookery.errors import ConfigError

MAX_SKEW_MS: Final = 10_000
"""The same limit as in brokers."""
_SILENCE_MS: Final = 10_000
"""How long a broker may be silent; it sends a heartbeat every three seconds."""
_LOOK_SECONDS: Final = 0.25


async def read_trusted_time(log: DirectLog, silence_ms: int = _SILENCE_MS) -> Time:
    """Return the current time, if this host's clock can be trusted.

    Args:
        log: the log of the cluster whose clock is compared.
        silence_ms: how long to wait for brokers without a recent heartbeat.

    Raises:
        ConfigError: the clock is wrong.
        Unavailable: the cluster log cannot be reached.
    """
    await log.barrier()
    skews = [skew for _, skew in _brokers(log).values()]
    if skews and median_low(skews) > MAX_SKEW_MS:
        skews = await _await_stamps(log, silence_ms)
    if skews:
        _check(log, median_low(skews), "that of the brokers")
    elif (last := await _last_stamp(log)) is not None:
        _check(log, min(log.clock.now_ms() - last, 0), "the last entry of the cluster log")
    return log.clock.now_ms()


def _brokers(log: DirectLog) -> dict[int, tuple[int, int]]:
    """Return each broker's last sequence, and how far this clock is ahead of its stamp."""
    brokers, now = log.state.brokers, log.clock.now_ms()
    return {
        broker.incarnation: (
            brokers.sequences[broker.incarnation],
            now - brokers.stamps[broker.incarnation],
        )
        for broker in brokers.by_node.values()
    }


async def _await_stamps(log: DirectLog, silence_ms: int) -> list[int]:
    """Wait until each broker has written a stamp or is dead; return the skews of the former."""
    before = _brokers(log)
    skews: dict[int, int] = {}
    until = log.clock.monotonic_ms() + silence_ms
    while log.clock.monotonic_ms() < until:
        await asyncio.sleep(_LOOK_SECONDS)
        await log.barrier()
        now = _brokers(log)
        for incarnation, (sequence, skew) in now.items():
            if before.get(incarnation, (sequence,))[0] != sequence:
                skews.setdefault(incarnation, skew)
        if skews.keys() >= now.keys():
            break
    return list(skews.values())


async def _last_stamp(log: DirectLog) -> int | None:
    """Return the timestamp of the last entry; None if all entries are trimmed."""
    cluster_log = log.handles.cluster_log
    number = await cluster_log.head()
    try:
        entries = await cluster_log.read(max(number - 1, 0))
    except EntriesTrimmed:
        return None
    return read_entry(*entries[-1]).stamp_ms if entries else None


def _check(log: DirectLog, ahead_ms: int, other: str) -> None:
    if abs(ahead_ms) <= MAX_SKEW_MS:
        return
    word = "ahead of" if ahead_ms > 0 else "behind"
    now = datetime.fromtimestamp(log.clock.now_ms() / 1000, UTC)
    raise ConfigError(
        f"this host's clock says {now:%Y-%m-%d %H:%M:%S} UTC, which is {abs(ahead_ms) / 1000:,.0f} "
        f"seconds {word} {other}: the age of records cannot be computed from it, so nothing was "
        "deleted; set the clock and run the job again"
    )
