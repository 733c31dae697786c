"""Handling of missing records: fail, skip, or skip and report.

A reported gap is a JSON file in the folder that `gapsTo` names, or an object in the store if it is
a URL. It is named after its offsets, so a task that finds the same gap again writes the same file.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from rookery.direct.blockinglog import LoopThread
from rookery.errors import ConfigError, Conflict
from rookery.log.read.rangeplan import Gap
from rookery.spark.read.options import ReadOptions
from rookery.store.open import open_store, store_traits

log = logging.getLogger(__name__)

_SHOWN: Final = 5


def handle_gaps(options: ReadOptions, gaps: Sequence[Gap]) -> None:
    """Handle gaps as the options specify.

    Raises:
        Conflict: the options specify that the query must fail.
        ConfigError, Unavailable: the gaps cannot be reported.
    """
    if not gaps:
        return
    words = "; ".join(map(str, gaps[:_SHOWN]))
    if len(gaps) > _SHOWN:
        words += f"; and {len(gaps) - _SHOWN} more"
    if options.on_data_loss == "fail":
        raise Conflict(
            f"records that this query needs are deleted: {words}. Start it elsewhere, or choose "
            "onDataLoss=skip (failOnDataLoss=false) or onDataLoss=report with gapsTo=FOLDER"
        )
    log.warning("records that this query needs are deleted: %s", words)
    if options.on_data_loss == "report":
        for gap in gaps:
            _report(options.gaps_to, gap)


def _report(target: str, gap: Gap) -> None:
    text = json.dumps(gap._asdict()) + "\n"
    name = f"{gap.partition}-{gap.begin:020}-{gap.end:020}.json"
    folder = store_traits(target).path
    if folder is None:
        _store(target, f"{gap.topic}/{name}", text.encode())
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{gap.topic}-{name}").write_text(text)
    except OSError as error:
        raise ConfigError(f"gapsTo={target!r}: {error.strerror or error}") from None


def _store(url: str, key: str, data: bytes) -> None:
    """Create an object if it is missing; in a separate loop, as the planner's loop is running."""

    async def write() -> None:
        store = open_store(url)
        try:
            with suppress(Conflict):
                await store.create(key, [data])
        finally:
            await store.close()

    thread = LoopThread("rookery-gaps")
    try:
        thread.run(write())
    finally:
        thread.close()
