"""A million rows over 512 skewed partitions, read under many network timings.

    python -m tests.consumer.million --rows 1000000 --partitions 512 --timings 50

Three real Kafkas, each through a proxy that delays every answer by chance. All readings must be
equal byte for byte, and equal to a plain dump of the log that DuckDB has sorted.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Final

from rookery.testing.kafka import KafkaCluster
from rookery.testing.kafkalogs import Logs
from tests.consumer.hard.offline import digest, dump, ordered
from tests.consumer.hard.skew import Shape, fill
from tests.consumer.hard.timings import readings

say: Final = partial(print, flush=True)


def main() -> int:
    """Run it; 0 if all are equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=512)
    parser.add_argument("--timings", type=int, default=50, help="how often it is read")
    parser.add_argument("--memory", type=int, default=256, metavar="MIB")
    parser.add_argument("--seed", type=int, default=1, help="of the log's content")
    parser.add_argument("--brokers", type=int, default=3)
    args = parser.parse_args()
    with KafkaCluster(args.brokers) as cluster, Logs(cluster.bootstrap) as logs:
        return _compare(args, logs)


def _compare(args: argparse.Namespace, logs: Logs) -> int:
    topic = logs.create("million", args.partitions)
    fill(logs, topic, Shape(args.rows, args.partitions, args.seed))
    say(f"{args.rows:,} rows are written")
    expected = ordered(dump(logs.bootstrap, [topic]))
    wanted = digest(expected)
    say(f"{expected.num_rows:,} rows dumped and sorted: {wanted}")
    wrong = 0
    for reading in readings(logs.bootstrap, [topic], range(args.timings), args.memory << 20):
        is_equal = reading.digest == wanted and reading.table.equals(expected)
        wrong += not is_equal
        rate = reading.table.num_rows / reading.seconds
        verdict = "equal" if is_equal else "DIFFERENT"
        say(
            f"timing {reading.seed}: {verdict}, {rate:,.0f} rows/s, {reading.cpu_seconds:.1f} CPU s"
        )
    say(f"{args.timings - wrong} of {args.timings} readings are equal to the sorted dump")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
