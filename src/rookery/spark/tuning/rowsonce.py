"""`rows-once`: a strategy for Spark's planner that spares one copy of each row of a Python source.

Changes: `experimental.extraStrategies` of the session gains `RowsOnce.java`, which Spark's own
compiler compiles in the driver. It plans the scans of all Python sources, ours and others.
Checked with pyspark 4.2 and 4.3; docs/designs/0010-spark-planner.md tells how Spark plans there.
"""

from __future__ import annotations

from typing import Final

from rookery.spark.planner import Extension
from rookery.spark.tuning.choice import Tuning

TUNING: Final = Tuning(
    name="rows-once",
    checked=("4.2", "4.3"),
    extension=Extension(
        package="rookery.spark.tuning",
        name="RowsOnce",
        hook="extraStrategies",
        without="copies each row that is read once more",
    ),
)
