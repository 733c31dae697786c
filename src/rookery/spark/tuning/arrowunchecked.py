"""`arrow-unchecked`: Java's Arrow does not check bounds and nulls for every value it reads.

Changes: two system properties of the Java processes. They affect all code that uses Arrow there. A
corrupt batch from any Python code can then read memory outside its buffers. Rookery's batches come
from checked records; those of other Python code may not. User options belong in `extraJavaOptions`,
which Spark adds to these. Checked with pyspark 4.2 and 4.3.
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
