"""Fuzz the reader of pushed metrics: any bytes give points, or are Corrupt.

Run as `python fuzz/otlp.py -max_total_time=60`.
"""

from __future__ import annotations

import contextlib
import sys

import atheris

with atheris.instrument_imports(include=["rookery"]):
    from rookery.errors import Corrupt
    from rookery.formats.otlp import read_points


def one_input(data: bytes) -> None:
    """Read all points; only Corrupt may be raised."""
    with contextlib.suppress(Corrupt):
        list(read_points(data))


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
