"""The hot loops over batches and records: compiled if built, else their Python twin.

Both modules have the same functions and raise the same errors; `_kernel.pyi` is the contract.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from rookery import native

Buffer: TypeAlias = bytes | bytearray | memoryview

FROM_PRODUCER = 1
CHECK_CRC = 2
# Walk uncompressed records; check only the start of compressed ones.
CHECK_RECORDS = 4
# The codecs that `scan` accepts are bits of the same number, from this bit up.
CODECS_SHIFT = 8

if TYPE_CHECKING:
    from rookery.records import _kernel as _module
else:
    _module = native.load("rookery.records._kernel", "rookery.records.twins.kerneltwin")

PATCH_FROM_BYTES = _module.PATCH_FROM_BYTES
decode = _module.decode
encode = _module.encode
scan = _module.scan
shift = _module.shift
walk = _module.walk
