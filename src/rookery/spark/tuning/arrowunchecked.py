"""`arrow-unchecked`: Java's Arrow does not check bounds and nulls for every value it reads.

Changes: two system properties of the Java processes. They hold for all that uses Arrow there, and a
damaged batch from anyone's Python can then read memory that is not its own. Our batches come
from checked records, but those of other Python code need not.
Options of one's own go into `extraJavaOptions`, which Spark adds to these.
Checked with pyspark 4.2 and 4.3.
"""

from __future__ import annotations

from typing import Final

from rookery.spark.tuning.choice import Tuning

_OPTIONS: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"

TUNING: Final = Tuning(
    name="arrow-unchecked",
    checked=("4.2", "4.3"),
    settings={
        "spark.driver.defaultJavaOptions": _OPTIONS,
        "spark.executor.defaultJavaOptions": _OPTIONS,
    },
)
