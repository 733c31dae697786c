"""Compaction against a model: any sequence of writes and upkeep."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.cluster.events.brokerevents import BrokerRegistered
from rookery.log.settings import RewriteSettings
from rookery.records.compression import CODECS
from rookery.records.recordcodec import BatchSettings
from tests.log.compacting import (
    DAY,
    WHERE,
    Sent,
    Topical,
    compactor,
    partition_of,
    rec,
    seen,
    send,
    table,
)
from tests.log.rewriting import Process, World, a_world

# Against a model: any sequence of writes and upkeep.

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b""])
BATCH = st.lists(
    st.tuples(KEYS, st.none() | st.binary(max_size=40), st.integers(0, 5_000)),
    min_size=1,
    max_size=8,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), BATCH, st.sampled_from(list(CODECS.values())),
                  st.sampled_from(WHERE)),
        st.tuples(st.just("wait"), st.sampled_from([1, 1_000, 60_000, DAY])),
        st.tuples(st.just("rewrite")),
        st.tuples(st.just("compact")),
        st.tuples(st.just("lead")),
    ),
    min_size=1,
    max_size=25,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(STEPS, st.sampled_from([0, 1_000, DAY]), st.sampled_from([12 * 27, 1 << 20]))
def test_reader_sees_the_last_value_of_every_key(
    steps: list[tuple[Any, ...]], retention_ms: int, map_bytes: int
) -> None:
    asyncio.run(_model(steps, Topical(delete_retention_ms=retention_ms), map_bytes))


async def _model(steps: list[tuple[Any, ...]], limits: Topical, map_bytes: int) -> None:
    small = RewriteSettings(segment_bytes=500, merge_bytes=2_000, row_bytes=300)
    with tempfile.TemporaryDirectory() as folder:
        async with a_world(Path(folder)) as world:
            process = await world.process()
            await world.topic(1)
            work = compactor(world, process, limits, rewrite=small, map_bytes=map_bytes)
            rewriter = process.rewriter(world, small)
            sent: list[Sent] = []
            nodes = itertools.count(2)
            for name, *rest in [*steps, ("compact",)]:
                if name == "send":
                    batch, codec, where = rest
                    records = [rec(key, value, time) for key, value, time in batch]
                    sent += await send(world, records, BatchSettings(codec=codec), where=where)
                elif name == "wait":
                    world.clock.advance(rest[0])
                elif name == "rewrite":
                    await rewriter.run()
                elif name == "lead":
                    await world.broker.register(
                        BrokerRegistered(
                            process_id=bytes(16), node_id=next(nodes), host="h", port=1
                        )
                    )
                else:
                    await work.run()
                await _check(world, process, sent)


async def _check(world: World, process: Process, sent: list[Sent]) -> None:
    records = await seen(world, process)
    assert [record for record in sent if record in set(records)] == records
    assert table(records) == table(sent)
    clean = [record.key for record in records if record.offset < partition_of(process).cleaned_to]
    assert len(clean) == len(set(clean))
