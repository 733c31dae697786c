"""Computes the partitions of keys and groups rows by partition: compiled, else its twin.

    chosen = partitions(offsets, data, 0, rows, False, 8)     # as Java's producer does it
    order, sizes = gather(chosen, 8)

`_murmur.pyi` is the contract of both modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookery import native

if TYPE_CHECKING:
    from rookery.records import _murmur as _module
else:
    _module = native.load("rookery.records._murmur", "rookery.records.twins.murmurtwin")

murmur2 = _module.murmur2
partitions = _module.partitions
gather = _module.gather
