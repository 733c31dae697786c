"""Times that go back in a partition: offset order stays, or rows are sorted within a bound."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import pyarrow as pa

from rookery.consumer.api import read
from rookery.testing.kafkalogs import NOON, Logs, rows
from tests.consumer.hard.offline import dump, of_partition, ordered, plain, values

SECONDS: Final = (5, 1, 3, 2, 4)


def _topic(logs: Logs) -> str:
    topic = logs.create("disorder", 2)
    logs.write(topic, 0, rows([NOON + 1000 * n for n in SECONDS]))
    logs.write(topic, 1, rows([NOON + 500 * n for n in range(12)]))
    return topic


def test_offset_order_is_kept_and_late_rows_are_marked(logs: Logs) -> None:
    topic = _topic(logs)

    with read(logs.bootstrap, topic) as stream:
        table = stream.to_table()

    mine = of_partition(table, 0)
    late = [value / timedelta(seconds=1) for value in values(mine, "lateness")]
    assert values(mine, "offset") == [0, 1, 2, 3, 4]
    assert late == [0, 4, 2, 3, 1]
    assert plain(table.to_batches()).equals(ordered(dump(logs.bootstrap, [topic])))


def test_lateness_allowance_restores_the_time_order(logs: Logs) -> None:
    topic = _topic(logs)

    with read(logs.bootstrap, topic, lateness=timedelta(seconds=5)) as stream:
        table = stream.to_table()

    times = values(table, "timestamp")
    assert times == sorted(times)
    assert not any(values(table, "lateness"))
    assert plain(table.to_batches()).equals(ordered(dump(logs.bootstrap, [topic]), 5000))


def test_late_rows_are_put_aside(logs: Logs) -> None:
    topic = _topic(logs)

    with read(logs.bootstrap, topic, late="side") as stream:
        table = stream.to_table()
        aside = pa.Table.from_batches(stream.take_side())

    assert table.num_rows == 13
    assert values(aside, "offset") == [1, 2, 3, 4]


def test_resuming_after_each_row_gives_the_same_remainder(logs: Logs) -> None:
    topic = _topic(logs)
    for lateness in (timedelta(0), timedelta(seconds=2)):
        with read(logs.bootstrap, topic, batch_rows=1, lateness=lateness) as stream:
            batches = list(stream)
        whole = plain(batches)
        for number, batch in enumerate(batches, 1):
            with read(logs.bootstrap, topic, start=batch.checkpoint, lateness=lateness) as resumed:
                rest = resumed.to_table()
            assert plain(rest.to_batches()).equals(whole.slice(number).combine_chunks())
