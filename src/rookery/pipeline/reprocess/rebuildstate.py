"""State of rebuilds for other modules: where they are staged, and whether one has completed.

A rebuild replaces all files of silver. Rows that a backfill or a replay is about to add would then
be duplicates, or would be lost with the old files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rookery.errors import Conflict
from rookery.pipeline.manifests import Manifests, Offsets
from rookery.tables.folder import TableFolder, below

_FOLDER: Final = "rebuild-"


def staging_state(state: str, batch: int, digest: str) -> str:
    """Return the staging location of a rebuild that will become the given batch."""
    return below(state, f"{_FOLDER}{batch}-{digest}")


def staging_states(state: str, batch: int) -> list[str]:
    """Return the staging locations of all rebuilds that can still become the given batch."""
    stored = TableFolder(state).list(f"{_FOLDER}{batch}-")
    return [below(state, name) for name in sorted({file.key.partition("/")[0] for file in stored})]


def read_rebuilt(state: str) -> Offsets:
    """Return the marks up to which the last rebuild decoded dead letters again."""
    last = Manifests(state).last()
    return last.rebuilt if last else {}


def unless_rebuilt(state: str) -> Callable[[str], None]:
    """Return a hook that stops an engine if silver was rebuilt meanwhile."""
    before = read_rebuilt(state)

    def look(step: str) -> None:
        if step == "manifest" and read_rebuilt(state) != before:
            raise Conflict(
                f"pipeline state {TableFolder(state).name}: silver was rebuilt meanwhile, so this "
                "is given up, and nothing of this batch was written: call it again"
            )

    return look
