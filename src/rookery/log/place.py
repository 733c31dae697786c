"""Where bytes lie in the local log."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """A position in a journal file."""

    object_id: int
    position: int
