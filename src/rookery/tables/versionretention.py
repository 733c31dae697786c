"""Selects the versions of a table to expire; fewer versions are kept as they get older.

A table with one commit per second would otherwise have half a million versions after a week. Every
commit would rewrite all of them in the table's metadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rookery.clock import Time
from rookery.tables.port import UpkeepPolicy

_MINUTE_MS: Final = 60 * 1000
_HOUR_MS: Final = 60 * _MINUTE_MS


def superfluous(times: Sequence[int], policy: UpkeepPolicy, now: Time) -> list[int]:
    """Return the indexes of the versions to expire; `times` is ordered from the oldest.

    Every version is kept for a while (`keep_every_ms`), then the last of each minute for an hour,
    then the last of each hour (`keep_ms`). The newest versions (`keep_versions`) are kept
    regardless of age.
    """
    until, every, hour = now - policy.keep_ms, now - policy.keep_every_ms, now - _HOUR_MS
    places = []
    for place in range(len(times) - max(policy.keep_versions, 1)):
        time, following = times[place], times[place + 1]
        step = _HOUR_MS if time < hour else _MINUTE_MS
        is_last = time // step != following // step
        if time < until or (time < every and not is_last):
            places.append(place)
    return places
