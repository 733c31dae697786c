"""One log, read many times with different network delays to every broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from time import perf_counter, process_time

import pyarrow as pa

from rookery.consumer.api import read
from rookery.testing.kafkaproxy import KafkaProxy
from tests.consumer.hard.offline import digest, plain

MAX_RTT_MS = 50.0


@dataclass(frozen=True, slots=True)
class Reading:
    """What came of one reading."""

    seed: int
    table: pa.Table
    digest: str
    seconds: float
    cpu_seconds: float


def readings(
    bootstrap: str, topics: Sequence[str], seeds: Sequence[int], memory: int
) -> Iterator[Reading]:
    """Read everything once for each seed of the network."""
    for seed in seeds:
        with KafkaProxy(bootstrap, seed=seed) as proxy:
            chance = Random(seed)
            for node in proxy.nodes:
                proxy.rtt_ms[node] = (0.0, chance.uniform(0.0, MAX_RTT_MS))
            began, cpu = perf_counter(), process_time()
            with read(proxy.bootstrap, topics, memory=memory) as stream:
                batches = list(stream)
            took, spent = perf_counter() - began, process_time() - cpu
        table = plain(batches)
        yield Reading(seed, table, digest(table), took, spent)
