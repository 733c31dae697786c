"""What all measurements are given: the servers, how much to move, and where to report it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from objectparts.figures import Figures
from objectparts.slowstore import SlowStore, slow_store
from rookery.testing.etcd import EtcdCluster

RECORD: Final = 1000
PARTITIONS: Final = 8


@dataclass(frozen=True)
class Scene:
    """How it is measured."""

    figures: Figures
    is_stub: bool
    megabytes: int
    """How much the throughput is measured with."""
    is_quick: bool

    @property
    def records(self) -> int:
        """How many records that is."""
        return self.megabytes * 1_000_000 // RECORD

    @contextmanager
    def servers(self) -> Iterator[tuple[SlowStore, EtcdCluster]]:
        """Run a slow store and an etcd of one member."""
        with slow_store(is_stub=self.is_stub) as store, EtcdCluster() as etcd:
            yield store, etcd
