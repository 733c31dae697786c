"""Rebuilds, as others see them: where they are staged, and that one has taken place.

A rebuild puts other files in the place of all of silver. What a backfill or a replay was about to
add then is there already, or would be gone with the old files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rookery.errors import Conflict
from rookery.pipeline.manifests import Manifests, Offsets
from rookery.tables.folder import TableFolder, below

_FOLDER: Final = "rebuild-"


def staging_state(state: str, batch: int, digest: str) -> str:
    """Return where a rebuild is staged that is to become a batch of the pipeline."""
    return below(state, f"{_FOLDER}{batch}-{digest}")


def staging_states(state: str, batch: int) -> list[str]:
    """Return where all rebuilds are staged that could yet become a batch."""
    stored = TableFolder(state).list(f"{_FOLDER}{batch}-")
    return [below(state, name) for name in sorted({one.key.partition("/")[0] for one in stored})]


def rebuilt(state: str) -> Offsets:
    """Return up to where dead letters were decoded again by the last rebuild."""
    last = Manifests(state).last()
    return last.rebuilt if last else {}


def unless_rebuilt(state: str) -> Callable[[str], None]:
    """Return what is told of an engine's steps, and stops it if silver was rebuilt meanwhile."""
    before = rebuilt(state)

    def look(step: str) -> None:
        if step == "manifest" and rebuilt(state) != before:
            raise Conflict(
                f"pipeline state {TableFolder(state).name}: silver was rebuilt meanwhile, so this "
                "is given up, and nothing of this batch was written: call it again"
            )

    return look
