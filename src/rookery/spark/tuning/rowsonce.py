"""`rows-once`: a planner strategy that avoids one copy of each row of a Python source.

Changes: adds `RowsOnce.java` to `experimental.extraStrategies` of the session. Spark's own compiler
compiles it in the driver. It plans the scans of all Python sources, not only Rookery's. Checked
with pyspark 4.2 and 4.3; docs/designs/0009-spark-planner.md describes how Spark plans these scans.
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
