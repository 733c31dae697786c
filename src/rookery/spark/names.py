"""The names of all options: those of readers, and those of writers.

A view in SQL is read and written, so it has options for both sides. Each side knows the other's
names and leaves them alone; what neither knows is misspelt, and refused.
"""

from __future__ import annotations

from typing import Final

SUBSCRIBE: Final = ("subscribe", "subscribePattern", "assign")
ENDS: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
PACE: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
)
BATCH_ONLY: Final = ("orderBy", "latestPerKey", "pushdown")
_PLACE: Final = ("store", "cluster", "namespace", "data")
# Places that can be read only: a writer that does not know them would write elsewhere.
_READ_PLACE: Final = ("layout", "logDir")
_READ: Final = (
    *SUBSCRIBE,
    *("startingOffsets", "startingTimestamp"),
    *("startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
    *ENDS,
    *PACE,
    *BATCH_ONLY,
    *("minPartitions", "maxRecordsPerPartition", "columns", "includeHeaders"),
    *("failOnDataLoss", "onDataLoss", "gapsTo", "pinFor", "resumeFrom"),
    *("kafka.isolation.level", "kafka.group.id", "groupIdPrefix"),
)
_WRITE: Final = (
    *("topic", "compression", "createTopic", "batchBytes", "objectBytes", "uploads"),
    *("sinkId", "batchId", "takeOver", "sourceOffsets"),
)

READ_NAMES: Final = (*_PLACE, *_READ_PLACE, *_READ)
"""What a reader may be told."""
WRITE_NAMES: Final = (*_PLACE, *_WRITE)
"""What a writer may be told."""
NOT_READ: Final = frozenset(name.lower() for name in _WRITE)
"""What a reader leaves alone, in lower case."""
NOT_WRITTEN: Final = frozenset(name.lower() for name in _READ)
"""What a writer leaves alone, in lower case."""
