"""A small segment with its `.index` and `.times`, built by hand: five records, gaps, one record."""

from __future__ import annotations

import struct
from typing import Final

from rookery.formats.times import SegmentAbort, SegmentEpoch, SegmentOrigin
from tests.formats import byhand

BATCHES: Final = [
    byhand.batch(1000, [b"jackdaw", b"rook"], 5000, epoch=3),
    byhand.batch(1002, [b"crow", b"raven", b"magpie"], 6000, epoch=3),
    byhand.batch(1009, [b"jay"], 4000, epoch=4, width=2),  # a gap before it, and one within it
]
POSITIONS: Final = [
    32,
    32 + len(BATCHES[0]),
    32 + len(BATCHES[0]) + len(BATCHES[1]),
]
SEGMENT: Final = byhand.segment(1000, 1012, 6, 1_767_225_600_000, BATCHES)
# Every three messages: the second batch ends with the fifth message, so the third has an entry.
INDEX: Final = byhand.index(3, [(1000, POSITIONS[0]), (1009, POSITIONS[2])])

ORIGIN: Final = SegmentOrigin("default", "birds", bytes(range(16)), 2, 7, 9)
ABORTED: Final = SegmentAbort(77, 990, 1003)
EPOCHS: Final = (SegmentEpoch(3, 400), SegmentEpoch(4, 1008))

_ORIGIN: Final = (
    bytes(range(16))  # topic id
    + struct.pack(">i", 2)  # partition
    + struct.pack(">q", 7)  # incarnation
    + struct.pack(">I", 9)  # number
    + struct.pack(">H", 7) + b"default"
    + struct.pack(">H", 5) + b"birds"
)  # fmt: skip
_SEGMENT: Final = (
    SEGMENT[:32] + SEGMENT[-16:] + struct.pack(">II", len(SEGMENT), byhand.crc32c(INDEX))
)
_BLOCKS: Final = (
    struct.pack(">qiqI", 1000, POSITIONS[0], 6002, byhand.crc32c(BATCHES[0] + BATCHES[1]))
    + struct.pack(">qiqI", 1009, POSITIONS[2], 4000, byhand.crc32c(BATCHES[2]))
)  # fmt: skip
SECTIONS: Final = [
    byhand.section(1, _ORIGIN),
    byhand.section(2, _SEGMENT),
    byhand.section(3, _BLOCKS),
    byhand.section(4, struct.pack(">qqq", 77, 990, 1003)),
    byhand.section(5, struct.pack(">iqiq", 3, 400, 4, 1008)),
]
TIMES: Final = byhand.times(SECTIONS)

DENSE: Final = byhand.segment(1000, 1005, 6, 5, [*BATCHES[:2], byhand.batch(1005, [b"jay"], 7000)])
"""A segment without gaps and without `.times`, as by a writer that does not compact."""
DENSE_INDEX: Final = byhand.index(100, [(1000, POSITIONS[0]), (1005, POSITIONS[2])])
