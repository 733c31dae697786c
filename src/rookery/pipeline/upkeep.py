"""Maintenance of a pipeline's tables and state, during a run or separately."""

from __future__ import annotations

import logging
from dataclasses import replace
from threading import Thread
from typing import Final

from rookery.clock import Clock, SystemClock
from rookery.pipeline.batch import seenkeys
from rookery.pipeline.batch.engine import sink_key
from rookery.pipeline.declaration.spec import Pipeline
from rookery.pipeline.manifests import CHAINS, Manifests
from rookery.pipeline.reprocess.rebuildstate import staging_states
from rookery.tables.folder import TableFolder, below
from rookery.tables.open import open_table
from rookery.tables.port import UpkeepPolicy, UpkeepResult

log = logging.getLogger(__name__)

_HOUR_MS: Final = 3600 * 1000


def keep_up(pipeline: Pipeline, clock: Clock | None = None) -> dict[str, UpkeepResult]:
    """Compact and expire every table of a pipeline; return the results by location."""
    policy = UpkeepPolicy(
        target_bytes=pipeline.upkeep.target_bytes,
        small_bytes=pipeline.upkeep.small_bytes,
        keep_ms=pipeline.upkeep.keep_ms(),
        keep_every_ms=pipeline.upkeep.keep_every_ms(),
    )
    now = (clock or SystemClock()).now_ms()
    # A batch with a manifest will be committed, even weeks later, so its files must be kept.
    waiting = _find_waiting(pipeline)
    done = {}
    for sink in pipeline.sinks:
        if sink.format != "topic":
            kept = replace(policy, staged=waiting.get(sink_key(sink), frozenset()))
            done[_place(sink.location)] = open_table(sink.table()).upkeep(kept, now)
    for gold in pipeline.gold:
        done[_place(gold.location)] = open_table(gold.table()).upkeep(policy, now)
    done["state"] = _state(pipeline)
    return done


def _place(location: str) -> str:
    return location.partition("?")[0]


def _find_waiting(pipeline: Pipeline) -> dict[str, frozenset[str]]:
    """Return the files of batches that may not be committed yet, by table.

    These are the last batch of each chain of manifests, and all batches of a rebuild that can
    continue.
    """
    last = Manifests(pipeline.state).last()
    chains = [Manifests(below(pipeline.state, name)).last() for name in CHAINS]
    batches = [chain for chain in (last, *chains) if chain is not None]
    for state in staging_states(pipeline.state, last.batch + 1) if last else ():
        batches += Manifests(state).all()
    paths_by_sink: dict[str, set[str]] = {}
    for batch in batches:
        for key, staged in batch.sinks.items():
            paths_by_sink.setdefault(key, set()).update(file.path for file in staged.files)
    return {key: frozenset(paths) for key, paths in paths_by_sink.items()}


class UpkeepThread:
    """Runs upkeep in a separate thread while batches continue."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._thread: Thread | None = None

    def after(self, batch: int) -> None:
        """Start upkeep if it is due and the last one has ended."""
        every = self._pipeline.upkeep.every_batches
        is_busy = self._thread is not None and self._thread.is_alive()
        if every and batch % every == every - 1 and not is_busy:
            self._thread = Thread(target=self._run, name="rookery-upkeep", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Wait for a running upkeep."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            keep_up(self._pipeline)
        except Exception as error:  # noqa: BLE001 (a thread's root; the next one tries again)
            log.warning("upkeep of pipeline %r failed: %s", self._pipeline.name, error)


def _state(pipeline: Pipeline) -> UpkeepResult:
    """Delete old manifests, and files of seen keys that no batch refers to."""
    manifests = Manifests(pipeline.state)
    last = manifests.last()
    if last is None:
        return UpkeepResult()
    # The next batch may be writing its files now, on hosts whose clocks differ.
    before_ms = last.at - _HOUR_MS
    deleted = seenkeys.forget(TableFolder(pipeline.state), set(last.seen.values()), before_ms)
    return UpkeepResult(versions_expired=manifests.prune(), files_deleted=deleted)
