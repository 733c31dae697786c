"""`early-connect`: the process that plans a stream connects to Spark before it loads pyspark.

Changes: the folder `early` is put first in the `PYTHONPATH` of Spark's Java process. Its
`sitecustomize` runs in every Python process that Java starts. In the planner of a stream it
replaces `socket.socket` until the first connect. Another `sitecustomize` on the path runs after it.
Use it on a host so busy that loading pyspark takes longer than Spark's limit of ten seconds.
Streams fail there with `Python worker failed to connect back`. It does not improve performance.
Checked with pyspark 4.2 and 4.3.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rookery.spark.tuning.choice import Tuning

TUNING: Final = Tuning(
    name="early-connect",
    checked=("4.2", "4.3"),
    folder=Path(__file__).parent / "early",
)
