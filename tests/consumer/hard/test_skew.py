"""The output depends on the log alone, not on the network or the memory."""

from __future__ import annotations

from rookery.testing.kafkalogs import Logs
from tests.consumer.hard.offline import digest, dump, inversions, ordered
from tests.consumer.hard.skew import Shape, fill
from tests.consumer.hard.timings import readings


def test_network_delays_do_not_change_the_result(many: Logs) -> None:
    shape = Shape(rows=20_000, partitions=64, batch_rows=200)
    topics = [many.create("skew", shape.partitions), many.create("other", 8)]
    fill(many, topics[0], shape)
    fill(many, topics[1], Shape(rows=5_000, partitions=8, seed=2))
    expected = ordered(dump(many.bootstrap, topics))

    roomy = list(readings(many.bootstrap, topics, seeds=[1, 2], memory=256 << 20))
    tight = list(readings(many.bootstrap, topics, seeds=[3], memory=3 << 20))

    assert expected.num_rows == 25_000
    for reading in (*roomy, *tight):
        assert reading.table.equals(expected), reading.seed
        assert reading.digest == digest(expected)
    # The log has disorder of its own, which no order of partitions hides.
    assert inversions(expected) > 0
