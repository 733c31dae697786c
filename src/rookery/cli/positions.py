"""The option `--from`: `beginning`, `end`, an offset, a time, or a span back from now."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from rookery.cli.partitions import ends_of
from rookery.client.client import Client
from rookery.clock import Clock
from rookery.errors import ConfigError
from rookery.model.offset import EARLIEST, LATEST
from rookery.model.partition import TopicPartition

_SPAN: Final = re.compile(r"(\d{1,9})([smhd])")
_SPAN_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


async def find_starts(
    client: Client, places: list[TopicPartition], start: str, clock: Clock
) -> dict[TopicPartition, int]:
    """Return the offset of each partition at a position such as `end` or `15m`."""
    where = parse_position(start, clock)
    if where is None:
        return dict.fromkeys(places, int(start))
    offsets = await client.offsets.find(dict.fromkeys(places, where))
    late = [place for place, row in offsets.items() if row.offset < 0]
    # No record is that recent: the next record to be written is the first one to read.
    ends = await ends_of(client, late) if late else {}
    return {place: ends.get(place, row.offset) for place, row in offsets.items()}


def parse_position(start: str, clock: Clock) -> int | None:
    """Return a position as EARLIEST, LATEST or a timestamp; None if it is an offset.

    Raises:
        ConfigError: it is not a position.
    """
    if start in {"beginning", "end"}:
        return EARLIEST if start == "beginning" else LATEST
    if start.isdecimal():
        return None
    if span := _SPAN.fullmatch(start):
        return max(0, clock.now_ms() - int(span[1]) * _SPAN_MS[span[2]])
    try:
        time = datetime.fromisoformat(start)
    except ValueError:
        raise ConfigError(
            f"{start!r} is neither beginning, end, an offset, a time such as "
            "2026-01-31T12:00:00Z, nor a span such as 15m",
            name="--from",
        ) from None
    # A time without a zone is in the user's zone.
    return max(
        0, int((time if time.tzinfo else time.astimezone()).astimezone(UTC).timestamp() * 1000)
    )
