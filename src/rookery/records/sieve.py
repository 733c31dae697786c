"""Selects the records of a batch that compaction keeps: compiled, else its Python twin.

    last = OffsetMap(128 << 20, seed)
    last.note(payload, header)                      # pass one, over what is new
    count, tombstones, highest, body = last.sift(payload, header, False)    # pass two, over all

`_sieve.pyi` is the contract of both modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookery import native

if TYPE_CHECKING:
    from rookery.records import _sieve as _module
else:
    _module = native.load("rookery.records._sieve", "rookery.records.twins.sievetwin")

SEED_BYTES = 16
SLOT_BYTES = _module.SLOT_BYTES
OffsetMap = _module.OffsetMap
rebase = _module.rebase
