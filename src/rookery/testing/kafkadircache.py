"""Caches the data directory that `kafkadir` makes with a real Kafka.

The name of the copy contains Kafka's version and a hash of the code, so a change of either makes a
new one. Kafka would delete the records after some days, so an old copy is made again.
"""

from __future__ import annotations

import hashlib
import inspect
import pickle
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from rookery.testing import kafkadir, kafkasight, properties
from rookery.testing.folder import copy_folder
from rookery.testing.jars import VERSION, hold_lock
from rookery.testing.kafkadir import MadeDirectory, make
from rookery.testing.kafkasight import ClusterSight

MAX_AGE_SECONDS: Final = 3 * 24 * 3600
_SEEN: Final = "seen.pickle"


def make_cached(home: Path, cache: Path | None = None) -> MadeDirectory:
    """Return a copy of the directory in the new folder `home`.

    It is made first if no recent one is kept. Any number of processes may ask at once: one
    makes it, the others wait.
    """
    cache = cache or Path.home() / ".cache" / "rookery"
    cache.mkdir(parents=True, exist_ok=True)
    kept = cache / f"kafkadir-{VERSION}-{_hash()}"
    with hold_lock(cache / f"{kept.name}.lock"):
        if not _is_recent(kept):
            _keep(kept)
    copy_folder(kept, home)
    # We wrote this file ourselves.
    made: MadeDirectory = pickle.loads((home / _SEEN).read_bytes())  # noqa: S301
    return MadeDirectory(_move(made.killed, home), _move(made.stopped, home))


def _hash() -> str:
    digest = hashlib.sha256()
    for module in (kafkadir, kafkasight, properties):
        digest.update(inspect.getsource(module).encode())
    return digest.hexdigest()[:12]


def _is_recent(kept: Path) -> bool:
    seen = kept / _SEEN
    return seen.exists() and time.time() - seen.stat().st_mtime < MAX_AGE_SECONDS


def _keep(kept: Path) -> None:
    shutil.rmtree(kept, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=kept.parent) as folder:
        work = Path(folder) / "made"
        work.mkdir()
        made = make(work)
        shutil.rmtree(work / "kafka", ignore_errors=True)
        (work / _SEEN).write_bytes(pickle.dumps(made))
        # A rename is atomic: a killed process leaves no incomplete copy.
        work.rename(kept)


def _move(seen: ClusterSight, home: Path) -> ClusterSight:
    return replace(seen, folder=home / seen.folder.name)
